"""No code outside the engines' files names an engine.

Comments and docstrings may name the engine at which a fact was measured. The emulator names the
engines that it emulates.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from router.fleet.engines.common.registry import ENGINES
from tests.places import ROOT

NAMES = [engine.name for engine in ENGINES.values() if engine.is_recognised]
MORE = ("tensorrt", "trt_llm", "llama.cpp", "llama_cpp", "ollama", "dynamo", "lmdeploy", "triton")
NAMED = re.compile("|".join(map(re.escape, (*NAMES, *MORE))), re.IGNORECASE)
AT_HOME = (
    "router/fleet/engines/",
    "router/lab/emulator/http/personas/",
    "router/lab/emulator/http/shapes/",
    "router/lab/emulator/http/kv_wire.py",
)
# The help of the emulator's options names the engine that each option is for. The measurement of
# overhead uses recorded answers of an engine.
OTHERS = ("router/lab/emulator/command.py", "router/lab/overhead/shapes.py")


def words(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each name and each string in code, except strings used as documentation."""
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "arg", "name", "module"):  # names, however they are used
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield line, name
        if isinstance(node, ast.Constant) and id(node) not in documents:
            if isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.lineno, node.value


def named(source: str) -> list[str]:
    return [f"{line}: {word}" for line, word in words(source) if NAMED.search(word)]


def files() -> list[str]:
    found = [*(ROOT / "router").rglob("*.py"), *(ROOT / "policies").rglob("*.py")]
    paths = (str(file.relative_to(ROOT)) for file in found)
    return sorted(path for path in paths if not path.startswith((*AT_HOME, *OTHERS)))


def test_no_engine_is_named() -> None:
    assert len(files()) > 300
    found = {path: named((ROOT / path).read_text()) for path in files()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        'X = "vllm"',
        'X = {"sglang": 1}',
        'if engine == "tgi": pass',
        'HEADER = b"x-vllm-priority"',
        "from router.fleet.engines.llamacpp import NAMES",
        "def trtllm_number(): pass",
        "ask(ollama=1)",
    ],
)
def test_the_search_sees_one(line: str) -> None:
    assert len(named(line)) == 1
