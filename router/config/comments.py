"""Reads the docstring of a class, and the comments beside its fields, from its source.

Python cannot find the source of a compiled class, and such a class has no docstring. So this module
reads the `.py` file beside the binary.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path


def comments_of(cls: type) -> dict[str, str]:
    """Return the text of each field: the comment lines directly above it, and on its lines."""
    source = _source(cls)
    found = _node(cls, source)
    if found is None:
        return {}
    comments = _comments(source)
    lines = source.splitlines()
    texts: dict[str, str] = {}
    for node in found.body:
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


def doc_of(cls: type) -> str:
    """Return the docstring of a class, or else that of its nearest base class that has one."""
    for base in cls.__mro__:
        node = None if base is object else _node(base, _source(base))
        text = None if node is None else ast.get_docstring(node)
        if text:
            return text
    return ""


def _source(cls: type) -> str:
    """Return the source of a class's module; "" if it is not written in Python."""
    module = sys.modules[cls.__module__]
    file = getattr(module, "__file__", None) or ""
    path = Path(file).parent / (cls.__module__.rsplit(".", 1)[-1] + ".py")
    return path.read_text() if path.is_file() else ""


def _node(cls: type, source: str) -> ast.ClassDef | None:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return node
    return None


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }
