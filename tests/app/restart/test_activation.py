"""The variables of socket activation, and the sockets that they describe: sd_listen_fds(3)."""

import os
import socket

import pytest

from router.app.restart import activation
from router.app.restart.activation import passed, take
from router.core.errors import ConfigError

PID = 77


def variables(count: str, names: str | None = None, pid: int = PID) -> dict[str, str]:
    found = {"LISTEN_PID": str(pid), "LISTEN_FDS": count, "HOME": "/"}
    return found if names is None else {**found, "LISTEN_FDNAMES": names}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, []),
        ({"LISTEN_FDS": "1"}, []),
        (variables("2", "listen:admin", pid=PID + 1), []),
        (variables("0"), []),
        (variables("1"), [(3, "unknown")]),
        (variables("1", ""), [(3, "unknown")]),
        (variables("2", "listen:admin"), [(3, "listen"), (4, "admin")]),
    ],
)
def test_what_was_passed(environ: dict[str, str], wanted: list[tuple[int, str]]) -> None:
    assert passed(environ, PID) == wanted


@pytest.mark.parametrize(
    "environ", [variables("x"), variables("-1"), variables(""), variables("2", "listen")]
)
def test_variables_that_contradict_each_other(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="LISTEN_FD"):
        passed(environ, PID)


def test_sockets_are_taken_and_variables_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        first = os.dup(sock.fileno())
        os.set_inheritable(first, True)
        monkeypatch.setattr(activation, "FIRST_FD", first)
        environ = variables("1", "hedgerow.socket")
        (one,) = take(environ, PID)
    assert environ == {"HOME": "/"}
    # A socket whose name is no listener's name is found by its address.
    assert (one.name, one.address) == ("hedgerow.socket", f"127.0.0.1:{port}")
    assert not one.sock.get_inheritable()
    assert not one.sock.getblocking()
    one.sock.close()


def test_the_name_of_a_listener_needs_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        monkeypatch.setattr(activation, "FIRST_FD", os.dup(sock.fileno()))
        (one,) = take(variables("1", "listen"), PID)
    assert (one.name, one.address) == ("listen", "")
    one.sock.close()
