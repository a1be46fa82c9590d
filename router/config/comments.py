"""Reads the comments beside the fields of a class from its source.

Python cannot find the source of a compiled class, so this module reads the `.py` file beside the
binary.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path


def comments_of(cls: type) -> dict[str, str]:
    """Returns the text of each field: the comment lines directly above it, and on its lines."""
    source = _source(cls)
    tree = ast.parse(source)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls.__name__]
    if not found:
        return {}
    comments = _comments(source)
    lines = source.splitlines()
    texts: dict[str, str] = {}
    for node in found[0].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        parts: list[str] = []
        above = node.lineno - 1
        while above in comments and lines[above - 1].lstrip().startswith("#"):
            parts.insert(0, comments[above])
            above -= 1
        last = node.end_lineno or node.lineno
        parts += [comments[line] for line in range(node.lineno, last + 1) if line in comments]
        texts[node.target.id] = " ".join(parts)
    return texts


def _source(cls: type) -> str:
    module = sys.modules[cls.__module__]
    assert module.__file__ is not None
    return (Path(module.__file__).parent / (cls.__module__.rsplit(".", 1)[-1] + ".py")).read_text()


def _comments(source: str) -> dict[int, str]:
    """Returns the texts of all comments, by line number."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }
