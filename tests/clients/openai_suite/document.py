"""Generate an OpenAPI document of the `openai` SDK's requests from the SDK's source.

Runs where the SDK is installed: `python document.py > openapi.json`. Each call of a resource's
`_get`, `_post` and similar names a method, a path and the type of the response. A mock server needs
the type's JSON schema to answer it. Request bodies are not checked: the SDK's tests check
responses.
"""

import ast
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import openai.resources
from pydantic import TypeAdapter

METHODS = {"_get": "get", "_post": "post", "_put": "put", "_patch": "patch", "_delete": "delete"}
LIST = "_get_api_list"
PREFIX = "/v1"
REF = "#/components/schemas/{model}"
ANYTHING = {"content": {"*/*": {"schema": {}}}}


def main() -> None:
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for module, call in calls():
        found = described(module, call)
        if found is None:
            continue
        method, path, type_ = found
        content = content_of(type_, schemas)
        operation = {"responses": {"200": {"description": "OK", "content": content}}}
        if method != "get":
            operation["requestBody"] = ANYTHING
        if "{" in path:
            names = [part[1:].partition("}")[0] for part in path.split("/") if part[:1] == "{"]
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        paths.setdefault(PREFIX + path, {})[method] = operation
    json.dump(
        {
            "openapi": "3.1.0",
            "info": {"title": "what the SDK asks for", "version": openai.__version__},
            "paths": paths,
            "components": {"schemas": schemas},
        },
        sys.stdout,
    )


def calls() -> Iterator[tuple[ModuleType, ast.Call]]:
    """Each request that a synchronous resource makes, with the module whose names it uses."""
    root = openai.resources
    for info in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        module = importlib.import_module(info.name)
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("Async"):
                continue
            for inner in ast.walk(node):
                if (
                    isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Attribute)
                    and inner.func.attr in (*METHODS, LIST)
                ):
                    yield module, inner


def described(module: ModuleType, call: ast.Call) -> tuple[str, str, Any] | None:
    """Method, path and response type of a call; None: the path is built at run time."""
    assert isinstance(call.func, ast.Attribute)
    words = {word.arg: word.value for word in call.keywords}
    path = call.args[0] if call.args else None
    if isinstance(path, ast.Call) and path.args:  # path_template("/a/{b}", b=b)
        path = path.args[0]
    if not isinstance(path, ast.Constant) or not isinstance(path.value, str):
        return None
    if call.func.attr == LIST:
        method = words.get("method", ast.Constant("get"))
        assert isinstance(method, ast.Constant)
        return str(method.value), path.value, evaluated(module, words["page"])
    type_ = words.get("cast_to")
    if type_ is None:
        return None
    return METHODS[call.func.attr], path.value, evaluated(module, type_)


def evaluated(module: ModuleType, node: ast.expr) -> Any:
    expression = ast.Expression(node)
    # Audio chooses its type by the requested format; without one it is JSON.
    names = {**vars(module), "response_format": openai.omit}
    return eval(compile(expression, "cast_to", "eval"), names)


def content_of(type_: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    if type_ is str:
        return {"text/plain": {"schema": {"type": "string"}}}
    if type_ is type(None):
        return {"application/json": {"schema": {"type": "object"}}}
    if "HttpxBinaryResponseContent" in repr(type_):
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    adapter = TypeAdapter(type_)
    schema = adapter.json_schema(ref_template=REF, mode="serialization")
    parts = schema.get("$defs", {})
    if any(schemas.get(name, part) != part for name, part in parts.items()):
        # Two types have the same name: these get unique names.
        own = f"of_{len(schemas)}_"
        schema = adapter.json_schema(ref_template=REF.replace("{", own + "{"), mode="serialization")
        parts = {own + name: part for name, part in schema.get("$defs", {}).items()}
    schemas.update(parts)
    schema.pop("$defs", None)
    return {"application/json": {"schema": schema}}


if __name__ == "__main__":
    main()
