"""Finds settings that are valid, and that an operator rarely means. `hedgerow check` prints them.

Must never: print a secret, or make a configuration invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Final

from router.config.address import is_loopback, split_host_port
from router.config.admin_checks import needs_secret
from router.config.model import Config, Cors
from router.config.tls import token_of

# A shorter token can be guessed over the network. 16 random characters have about 96 bits.
_TOKEN_CHARS: Final = 16
# Networks with a shorter prefix are parts of the internet, not networks of proxies.
_PREFIX_V4, _PREFIX_V6 = 8, 16

# The header fields that pages send with a request for a chat, and what they are for.
_PAGES_SEND: Final = {
    "Authorization": "send an API key as Bearer token",
    "Content-Type": "send bodies of JSON",
}


def notes(config: Config, *, reads_files: bool = True) -> Iterator[str]:
    """Yields one sentence for each setting. The configuration must be valid.

    `reads_files`: whether the files and the environment variables with tokens may be read.
    """
    keys = config.keys
    if (keys.file or keys.folder) and not keys.required:
        yield "keys.required is false, so requests with a wrong key or no key are accepted"
    if config.batches.enabled and not keys.required:
        yield (
            "batches without keys.required: clients without a credential share their files and "
            "batches, and so do all clients that send the same one, such as Bearer EMPTY"
        )
    yield from _of_admin(config, reads_files)
    yield from _of_proxies(config.trusted_proxies)
    yield from _of_cors(config.cors)


def _of_admin(config: Config, reads_files: bool) -> Iterator[str]:
    admin = config.admin
    is_certified = admin.tls is not None and admin.tls.client_ca is not None
    if is_certified or is_loopback(split_host_port(admin.listen)[0]) or not needs_secret(admin):
        return
    if reads_files or admin.token is not None:
        size = len(token_of(admin) or "")
        if size < _TOKEN_CHARS:
            yield (
                f"admin.token has {size} character{'' if size == 1 else 's'}, and other machines "
                f"can reach admin.listen ({admin.listen}) and guess it: use {_TOKEN_CHARS} random "
                "characters or more"
            )
    if admin.tls is None:
        yield (
            f"admin.tls is unset, so admin requests to admin.listen ({admin.listen}) send the "
            "token over plain HTTP, and it can be read on the network: set admin.tls, or listen on "
            "127.0.0.1"
        )


def _of_proxies(trusted: tuple[str, ...]) -> Iterator[str]:
    networks = [ip_network(text) for text in trusted]
    v4 = [network for network in networks if isinstance(network, IPv4Network)]
    v6 = [network for network in networks if isinstance(network, IPv6Network)]
    wide = [str(one) for one in collapse_addresses(v4) if one.prefixlen < _PREFIX_V4]
    wide += [str(one) for one in collapse_addresses(v6) if one.prefixlen < _PREFIX_V6]
    if wide:
        yield (
            f"trusted_proxies has {', '.join(wide)}, so clients there can state any address in "
            "X-Forwarded-For and are then other clients for fairness and limits: name only the "
            "networks of your proxies"
        )


def _of_cors(cors: Cors) -> Iterator[str]:
    if not cors.origins or "*" in cors.headers:
        return
    listed = {name.lower() for name in cors.headers}
    for name, why in _PAGES_SEND.items():
        if name.lower() not in listed:
            yield f"cors.headers has no {name}, so browsers do not let pages {why}"
