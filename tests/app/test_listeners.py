"""Which listening sockets a router binds, takes over and closes."""

import socket

import pytest

from router.app.listeners import ADMIN, DATA, PROBES, Listener, Listeners, bind
from router.core.errors import ConfigError


def bound(name: str, address: str | None = None) -> Listener:
    """An inherited socket; `address`: the configured one, by default its own."""
    (sock,) = bind("127.0.0.1", 0)
    own = f"127.0.0.1:{sock.getsockname()[1]}"
    return Listener(name, own if address is None else address, sock)


def is_accepting(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_socket_is_bound_and_closed() -> None:
    listeners = Listeners()
    listeners.open(DATA, "127.0.0.1:0")
    port = listeners.port(DATA)
    assert listeners.address(DATA) == f"127.0.0.1:{port}"
    assert is_accepting(port)
    listeners.close(DATA)
    assert not is_accepting(port)
    assert (listeners.port(DATA), listeners.open_ones) == (0, [])


def test_a_copy_outlives_the_socket() -> None:
    listeners = Listeners()
    listeners.open(DATA, "127.0.0.1:0")
    (copy,) = listeners.copies(DATA)
    port = listeners.port(DATA)
    listeners.close_all()
    assert is_accepting(port)
    copy.close()
    assert not is_accepting(port)


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: address already in use"):
            Listeners().open(ADMIN, f"127.0.0.1:{port}")


def test_a_socket_from_systemd_serves_whatever_is_configured() -> None:
    one = bound(DATA, address="")
    listeners = Listeners([one])
    listeners.open(ADMIN, "127.0.0.1:0")
    listeners.open(DATA, "0.0.0.0:8080")
    assert listeners.sockets(DATA) == [one.sock]
    assert listeners.sockets(ADMIN) != [one.sock]
    assert [x.address for x in listeners.open_ones if x.name == DATA] == [""]
    listeners.close_all()


def test_a_socket_of_the_old_process_serves_its_address() -> None:
    one = bound(DATA)
    listeners = Listeners([one])
    listeners.open(PROBES, "127.0.0.1:0")
    listeners.open(ADMIN, one.address)  # exchanged in the new configuration
    assert listeners.sockets(ADMIN) == [one.sock]
    listeners.close_all()


def test_any_free_port_is_not_one_address() -> None:
    admin = bound(ADMIN, "127.0.0.1:0")
    listeners = Listeners([admin])
    listeners.open(DATA, "127.0.0.1:0")
    listeners.open(ADMIN, "127.0.0.1:0")
    assert listeners.sockets(DATA) != [admin.sock]
    assert listeners.sockets(ADMIN) == [admin.sock]
    listeners.close_all()


def test_several_addresses() -> None:
    first, second = bound(DATA), bound(DATA)
    listeners = Listeners([first, second])
    listeners.open(DATA, f"{second.address}, [::1]:0")
    assert listeners.sockets(DATA)[0] is second.sock
    assert [sock.family for sock in listeners.sockets(DATA)] == [socket.AF_INET, socket.AF_INET6]
    assert listeners.address(DATA).startswith(f"{second.address}, [::1]:")
    listeners.drop_unused()
    assert first.sock.fileno() == -1
    listeners.close_all()


def test_sockets_from_systemd_replace_all_addresses() -> None:
    ones = [bound(DATA, address=""), bound(DATA, address="")]
    listeners = Listeners(ones)
    listeners.open(DATA, "0.0.0.0:1, [::]:1")
    assert listeners.sockets(DATA) == [one.sock for one in ones]
    listeners.check_used()
    listeners.close_all()


def test_if_one_address_is_in_use_the_error_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = Listeners()
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: address already in use"):
            listeners.open(DATA, f"[::1]:0,127.0.0.1:{port}")
        listeners.close_all()


def test_an_unused_socket_is_an_error_of_systemds_configuration_only() -> None:
    one = bound("web")
    listeners = Listeners([one])
    with pytest.raises(ConfigError, match=f"'web' at {one.address}.*listen, admin, probes"):
        listeners.check_used()
    listeners.drop_unused()  # the old process may have had more listeners
    listeners.check_used()
    assert one.sock.fileno() == -1
