"""Only tests in certain folders may open sockets; all other tests run in memory.

A test with sockets is slower, and depends on the machine's load and on its ports. Those of an addon
are in its folder `app`. The folders of tools (`harness`, `bench`, ...) mirror nothing of the router
and are not checked.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

TESTS = ROOT / "tests"
WITH_SOCKETS = ("abuse", "app", "clients", "engine", "faults")
TOOLS = ("bench", "fuzz", "harness", "install", "mutation")
# What opens a socket, or talks to one, by the last part of its name.
OPENERS = {
    *("open_connection", "create_connection", "start_server", "create_server", "start_unix_server"),
    *("create_datagram_endpoint", "TCPSite", "UnixSite", "SockSite", "HTTPConnection", "urlopen"),
    *("HTTPServer", "ThreadingHTTPServer"),
}
# Modules, and names of them, that no test in memory needs.
MODULES = {"httpx", "openai", "zmq", "http.client", "http.server", "urllib.request"}
MODULES |= {f"tests.harness.{name}" for name in ("client", "crowd", "emulated", "listeners")}
MODULES |= {f"tests.harness.{name}" for name in ("over_tls", "peer", "process")}
NAMES = {"tests.harness.running.running", "tests.harness.replica.HostileReplica", "socket.socket"}


def is_apart(path: Path) -> bool:
    """Whether a file or folder may open sockets, or belongs to a tool."""
    parts = path.relative_to(TESTS).parts
    return parts[0] in (*WITH_SOCKETS, *TOOLS) or (parts[0], *parts[2:3]) == ("addons", "app")


FILES = sorted(path for path in TESTS.rglob("*.py") if not is_apart(path))


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each import and of each attribute, with its module if that is a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            module = f"{node.value.id}." if isinstance(node.value, ast.Name) else ""
            yield node.lineno, f"{module}{node.attr}"


def opens(name: str) -> bool:
    module = name.rpartition(".")[0]
    parts = name.split(".")
    return (
        parts[-1] in OPENERS
        or name in NAMES
        or bool(MODULES & {name, module})
        or (parts[0] == "tests" and is_apart(TESTS.joinpath(*parts[1:])) and parts[1] not in TOOLS)
    )


def openers(source: str) -> list[str]:
    """Every use of a socket in a source, with its line."""
    return sorted(
        {f"line {line}: {name}" for line, name in names(ast.parse(source)) if opens(name)}
    )


def test_a_test_in_memory_opens_no_socket() -> None:
    found = [(path, use) for path in FILES for use in openers(path.read_text())]
    assert not found, f"move it to {' or '.join(WITH_SOCKETS)}, or use none: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "import zmq",
        "from socket import socket",
        "import socket\ns = socket.socket()",
        "async def f(): await asyncio.open_connection('a', 1)",
        "async def f(): await asyncio.get_running_loop().create_server(P, 'a', 1)",
        "from tests.harness.running import running, scenario",
        "from tests.harness import process",
        "from tests.app.fleet.servers import serving",
        "from tests.addons.batches.app.helpers import open_door",
        "from http.server import HTTPServer",
    ],
)
def test_a_use_of_a_socket_is_found(source: str) -> None:
    assert len(openers(source)) == 1


def test_the_folders_exist() -> None:
    assert len(FILES) > 300
    for folder in (*WITH_SOCKETS, *TOOLS):
        assert (TESTS / folder).is_dir()
