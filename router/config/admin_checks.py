"""Checks of `listen` and `admin`: the addresses of the ports, and who can reach the admin port."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.config.address import (
    is_loopback,
    is_shared,
    leads_to,
    parse_host,
    parse_replica_url,
    split_addresses,
    split_host_port,
)
from router.config.model import Admin, Config
from router.config.problems import Problems
from router.config.tls import admin_context, check_token, try_files

_TOKENS = ("admin.token", "admin.token_file", "admin.token_env")


def check_listeners(config: Config, problems: Problems) -> None:
    """Checks that the addresses are valid, that no two listeners have the same port, and that no
    listener is a replica. Only the start of the router knows all addresses of its machine."""
    listeners: tuple[tuple[str, str | None, Callable[[str], list[tuple[str, int]]]], ...] = (
        ("listen", config.listen, split_addresses),
        ("admin.listen", config.admin.listen, _admin_address),
        ("admin.probes_listen", config.admin.probes_listen, lambda text: [split_host_port(text)]),
    )
    found: list[tuple[str, str, str, int]] = []
    for path, text, split in listeners:
        if text is None:
            continue
        for host, port in problems.parsed(path, split, text) or ():
            for other, other_text, other_host, other_port in found:
                if port and port == other_port and is_shared(host, other_host):
                    problems.add(path, f"has the port of {other} ({other_text}); use another port")
            found.append((path, text, host, port))
    _check_not_own(config, found, problems)


def _admin_address(text: str) -> list[tuple[str, int]]:
    if text.isdigit():
        raise ValueError(f"a port alone would listen on every interface; write 127.0.0.1:{text}")
    return [split_host_port(text)]


def _check_not_own(
    config: Config, found: Sequence[tuple[str, str, str, int]], problems: Problems
) -> None:
    """Checks that no replica is one of the listeners `found`."""
    for item, replica in problems.each("replicas", config.replicas):
        path = f"{item}.url"
        if problems.is_spoiled(path):
            continue
        try:
            url = parse_replica_url(replica.url)
        except ValueError:
            continue  # Another check reports it.
        for other, _, host, port in found:
            if port == url.port and leads_to(url.host, host, is_loopback):
                problems.add(path, f"is this router's own listener ({other})")


def check_admin(config: Config, problems: Problems) -> None:
    """Checks the files of the admin port, and that other machines need a token or a certificate."""
    admin = config.admin
    tls = admin.tls
    if tls is not None and not problems.is_spoiled("admin.tls", "admin.tls.cert", "admin.tls.key"):
        try_files("admin.tls", lambda: admin_context(tls), problems)
    check_token("admin", admin, problems)
    for path, name in problems.each("admin.hosts", admin.hosts):
        host = name.removeprefix("*.")
        if (problems.parsed(path, parse_host, host) or host) != host:
            problems.add(path, f"{name!r} must be in lower case, without a final dot")
    if problems.is_spoiled("admin.listen", "admin.tls", *_TOKENS):
        return
    host, _ = split_host_port(admin.listen)
    if not is_guarded(admin, host):
        problems.add(
            "admin.token",
            f"is missing: other machines can reach admin.listen ({admin.listen}). "
            "Set admin.token_file, admin.token_env or admin.tls.client_ca, or listen on 127.0.0.1; "
            "admin.probes_listen needs no token",
        )


def is_guarded(admin: Admin, host: str) -> bool:
    """Whether an admin port at the address `host` is safe from other machines.

    Either other machines cannot reach the port, or they need a token or a certificate.
    """
    return needs_secret(admin) or is_loopback(host)


def needs_secret(admin: Admin) -> bool:
    """Whether clients of an admin port need a token or a certificate."""
    has_token = (admin.token, admin.token_file, admin.token_env) != (None, None, None)
    return has_token or (admin.tls is not None and admin.tls.client_ca is not None)
