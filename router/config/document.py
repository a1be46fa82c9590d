"""Parses YAML text into dicts, lists and scalars. Reports duplicate keys and unsupported syntax.

The parser creates only str, int, float, bool, None, list and dict. It refuses aliases, deep nesting
and large files, because a small file could need much memory. Scalars follow the core schema of YAML
1.2, not of YAML 1.1 as in PyYAML. So a model called `no` stays a name, `1e3` is a number, and
`10:30` is not 630.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import msgspec
import yaml

from router.config.problems import Problems, join
from router.core.unreadable import NOT_JSON

MAX_BYTES = 1024 * 1024  # maximum size of a file; a thousand replicas take about 100 KiB
_MAX_DEPTH = 32  # maximum nesting; the settings have four levels, options of policies may have more

_MAP, _SEQ, _STR = (f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str"))
_NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{n}" for n in ("null", "bool", "int", "float"))

# A reference to an environment variable, as in a shell and in a Kubernetes manifest.
_VARIABLE = re.compile(r"\$\{\w+[^}]*\}|\$\(\w+\)|\A\$[A-Z_][A-Z0-9_]*\Z")
_TOKENS = "a token can be in a file (token_file) or in an environment variable (token_env)"
# For parts of PyYAML's messages: what to do.
_HINTS = {
    r"character '\t'": "; indent with spaces, not with tabs",
    "expected <block end>": "; the indentation differs from the lines above",
    "mapping values are not allowed": "; check the indentation, or write the value in quotes",
}


class _Loader(yaml.SafeLoader):
    """Parses YAML into nodes. The function `_plain` creates the values from the nodes."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  (PyYAML reads this)
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self._refuse("aliases are not supported")
        if self.depth >= _MAX_DEPTH:
            self._refuse("nested too deeply")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _refuse(self, why: str) -> NoReturn:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        raise yaml.MarkedYAMLError(problem=why, problem_mark=event.start_mark)


for _tag, _pattern, _first in (
    (_NULL, r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    (_BOOL, r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    (_INT, r"(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)\Z", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))\Z"
        r"|\.(?:nan|NaN|NAN)\Z",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)


def parse_document(text: str, problems: Problems) -> dict[str, Any]:
    """Return the mapping of a document. Errors are added to `problems`.

    Returns an empty mapping for an empty document and for text that is not YAML.
    """
    node = _node(text, problems)
    if node is None or node.tag == _NULL:
        return {}
    if not isinstance(node, yaml.MappingNode):
        problems.add("", "the configuration must be a mapping of keys to values")
        return {}
    plain: dict[str, Any] = _plain(node, "", problems)
    return plain


def parse_list(text: str, path: str, problems: Problems) -> list[Any]:
    """Return the list of a document in YAML or JSON. Errors are added to `problems`.

    `path`: the path of the list in errors. An empty document is an error, because a full disk or a
    program that is writing the file leaves one; an empty list is `[]`. JSON is read by another
    parser, because it is much faster, and because YAML does not allow tabs.
    """
    if text.lstrip()[:1] == "[":
        try:
            found: list[Any] = msgspec.json.decode(text, type=list[Any])
            return found
        except NOT_JSON:
            pass  # It may be YAML.
    node = _node(text, problems)
    if not isinstance(node, yaml.SequenceNode):
        if node is None or node.tag == _NULL:
            problems.add("", "is empty; a list without replicas is written []")
        else:
            problems.add("", "must be a list of replicas")
        return []
    return [_plain(item, f"{path}[{index}]", problems) for index, item in enumerate(node.value)]


def _node(text: str, problems: Problems) -> yaml.Node | None:
    """Return the root of a document. Returns `None`, and adds an error, if it is not YAML."""
    try:
        found: yaml.Node | None = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as err:
        problems.add("", _describe(err))
    except yaml.YAMLError as err:  # the text has a character that YAML does not allow
        problems.add("", f"not YAML: {' '.join(str(err).split())}")
    else:
        return found
    return None


def _plain(node: yaml.Node, path: str, problems: Problems) -> Any:
    if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
        return _mapping(node, path, problems)
    if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
        return [_plain(item, f"{path}[{index}]", problems) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        if _VARIABLE.search(node.value):
            problems.add(path, f"the variable in {node.value[:100]!r} is not replaced; {_TOKENS}")
            return None
        try:
            return _scalar(node.tag, node.value)
        except ValueError as err:
            problems.add(path, str(err))
            return None
    problems.add(path, f"the tag {node.tag} is not supported")
    return None


def _mapping(node: yaml.MappingNode, path: str, problems: Problems) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    first_line: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            problems.add(path, f"a key must be a plain word (line {line})")
            continue
        key = key_node.value
        here = join(path, key)
        if key in plain:
            problems.add(here, f"given twice (lines {first_line[key]} and {line})")
            continue
        first_line[key] = line
        plain[key] = _plain(value_node, here, problems)
    return plain


def _scalar(tag: str, text: str) -> Any:
    if tag == _STR:
        return text
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag == _INT:
        if len(text) > 30:
            raise ValueError("the number is too long")
        return int(text, 16) if text.startswith("0x") else int(text)
    if tag == _FLOAT:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise ValueError(f"the tag {tag} is not supported")


def _describe(err: yaml.MarkedYAMLError) -> str:
    mark = err.problem_mark or err.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = err.problem or err.context or ""
    hint = next((hint for part, hint in _HINTS.items() if part in problem), "")
    return f"not YAML: {where}{problem}{hint}"
