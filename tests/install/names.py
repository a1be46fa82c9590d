"""Finds distributions that own one of this program's top-level import names.

Python imports the first module of a name that it finds, so two distributions with one name break
each other. Run as a script, this file checks the environment of its interpreter: exit status 1 and
one line for each collision.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

OURS = ("hedgerow__mypyc", "policies", "router")
PROGRAM = "hedgerow"


def collisions() -> list[str]:
    """One sentence for each of our names that another installed distribution also owns."""
    return [
        f"the import name `{module}` of {PROGRAM} also belongs to the distribution"
        f" {distribution.metadata['Name']} {distribution.version} ({distribution.locate_file('')});"
        f" install {PROGRAM} in a virtual environment of its own, or with pipx"
        for distribution in distributions()
        if distribution.metadata["Name"] != PROGRAM
        for module in sorted(set(top_level(distribution)) & set(OURS))
    ]


def top_level(distribution: Distribution) -> Iterator[str]:
    """The names of a distribution that `import` can find at the top level."""
    yield from (distribution.read_text("top_level.txt") or "").split()
    for file in distribution.files or ():
        first = file.parts[0]
        if len(file.parts) > 1 and not first.endswith((".dist-info", ".egg-info")):
            yield first
        elif file.suffix in (".py", ".so"):
            yield first.partition(".")[0]


if __name__ == "__main__":
    problems = collisions()
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
