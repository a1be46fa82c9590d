"""Finds names of metrics and labels in PromQL expressions that a router does not expose.

It reads only the parts of the language that the files in deploy/ use. `promtool` checks the syntax.
"""

import re

ADDED = {"job", "instance"}  # labels that Prometheus adds to every sample

Samples = set[tuple[str, frozenset[tuple[str, str]]]]

SELECTOR = re.compile(r"\b((?:hedgerow|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"')
BY = re.compile(r"\bby\s*\(([^)]*)\)")
IN_TEXT = re.compile(r"\$labels\.(\w+)")


def problems(expr: str, samples: Samples, texts: str = "") -> list[str]:
    """Return what an expression, and texts with `$labels`, name and `samples` do not have.

    `samples`: the name and the labels of each sample.
    """
    found = []
    kept = ADDED.copy()
    for name, inside in SELECTOR.findall(expr):
        matchers = [at for at in MATCHER.findall(inside) if at[0] not in ADDED]
        fitting = [
            dict(labels)
            for sample, labels in samples
            if sample == name and all(_fits(dict(labels), matcher) for matcher in matchers)
        ]
        if not fitting:
            found.append(f"{name}{{{inside}}}")
        kept |= {label for labels in fitting for label in labels}
    for words in BY.findall(expr):
        wanted = set(re.findall(r"\w+", words))
        found += sorted(wanted - kept)
        kept = wanted
    return found + sorted(set(IN_TEXT.findall(texts)) - kept)


def _fits(labels: dict[str, str], matcher: tuple[str, str, str]) -> bool:
    label, how, value = matcher
    pattern = re.escape(value) if how == "=" else value
    fits = re.fullmatch(pattern, labels.get(label, "")) is not None
    return fits != (how == "!=")
