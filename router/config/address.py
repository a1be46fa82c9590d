"""Parses the addresses of the configuration: `host:port` to listen on, URLs of replicas.

No function resolves a name. For an invalid text, every function raises ValueError. The message of
the error states what is wrong and, for a common mistake, the correct form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

# A label of a host name. RFC 1123 does not allow the underscore, but Docker Compose uses it in
# names, and every resolver accepts the underscore.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")
# A path of a URL: the characters that RFC 3986 section 3.3 allows, including percent-escapes.
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*\Z")
_DATABASE = re.compile(r"/?[0-9]*\Z")
WILDCARDS = frozenset({"0.0.0.0", "::"})  # every address of this machine
_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ReplicaUrl:
    """A replica's URL in parts. `host` has no brackets; `base_path` is "" or "/prefix"."""

    scheme: str  # "http" or "https"
    host: str
    port: int
    base_path: str = ""

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def has_default_port(self) -> bool:
        return self.port == _DEFAULT_PORT[self.scheme]

    @property
    def authority(self) -> str:
        """The value of the Host field. The default port is left out (RFC 9110 section 7.2)."""
        if self.has_default_port:
            return _bracketed(self.host)
        return join_host_port(self.host, self.port)

    def has_authority(self, text: str) -> bool:
        """Whether the authority in a URL is that of this URL, with or without the port."""
        host = _bracketed(self.host)
        return text.lower() in {own.lower() for own in (host, f"{host}:", f"{host}:{self.port}")}

    @property
    def default_id(self) -> str:
        """The replica's ID if the configuration does not set one."""
        return join_host_port(self.host, self.port) + self.base_path

    def at(self, host: str, port: int) -> str:
        """Return the text of this URL with another host and port."""
        return f"{self.scheme}://{join_host_port(host, port)}{self.base_path}"

    @property
    def engine(self) -> tuple[str, int, str]:
        """A value that two URLs have in common only if they lead to the same engine."""
        host = "127.0.0.1" if self.host == "localhost" else self.host
        return host, self.port, self.base_path


def split_host_port(text: str) -> tuple[str, int]:
    """Splits `127.0.0.1:8080`, `name:8080` or `[::1]:8080` into host and port.

    A text that is only a port means every interface. Port 0 means any free port.
    """
    if _PORT.match(text):
        return "0.0.0.0", _parse_port(text, lowest=0)
    host, colon, port = text.rpartition(":")
    if not colon or not port or host.count("[") != host.count("]"):
        raise ValueError(f"{text!r} has no port; write HOST:PORT")
    if not host:
        raise ValueError(f"{text!r} has no host; write 0.0.0.0:{port} for every interface")
    return parse_host(host), _parse_port(port, lowest=0)


def split_addresses(text: str) -> list[tuple[str, int]]:
    """Splits addresses with commas between them, each as for `split_host_port`."""
    return [split_host_port(part.strip()) for part in text.split(",")]


def split_name_server(text: str) -> tuple[str, int]:
    """Splits `10.0.0.2`, `10.0.0.2:5353`, `::1` or `[::1]:5353` into address and port.

    Without a port, the port is 53.
    """
    try:
        return str(ip_address(text)), 53
    except ValueError:
        pass
    host, port = split_host_port(text)
    try:
        return str(ip_address(host)), port
    except ValueError:
        raise ValueError(f"{text!r} is not an address; write ADDRESS or ADDRESS:PORT") from None


def is_shared(host: str, other: str) -> bool:
    """Whether sockets for two hosts cannot listen on the same port."""
    if host == other:
        return True
    for wildcard, each in ((host, other), (other, host)):
        if wildcard in ("0.0.0.0", "::"):
            try:
                return ip_address(wildcard).version == ip_address(each).version
            except ValueError:
                return True  # a name, whose addresses are unknown
    return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`, a result of `split_host_port`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def leads_to(host: str, own: str, is_local: Callable[[str], bool]) -> bool:
    """Whether connections to `host` reach a listener of this machine at the address `own`.

    The ports are equal. `is_local`: whether an IP address belongs to this machine; it need not know
    the loopback addresses.
    """
    host = _plain(host)
    if own in WILDCARDS:
        return is_loopback(host) or is_local(host)
    return host == _plain(own)


def _plain(host: str) -> str:
    """Return the address to which the kernel connects for `host`. Names stay as they are."""
    if host in ("localhost", *WILDCARDS):
        return "::1" if host == "::" else "127.0.0.1"
    if host.lower().startswith("::ffff:"):
        mapped = IPv6Address(host).ipv4_mapped
        return host if mapped is None else str(mapped)
    return host


def is_address(host: str) -> bool:
    """Whether a host without brackets is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def host_of(authority: str) -> str:
    """Return the host of a `Host` field in lower case, without port, brackets and final dot."""
    host = authority.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def join_host_port(host: str, port: int) -> str:
    return f"{_bracketed(host)}:{port}"


def check_store_url(text: str) -> None:
    """Checks the URL of a server of Redis. The error has no part of it, because of the password."""
    try:
        url = urlsplit(text)
        is_network = url.scheme in ("redis", "rediss") and url.hostname and url.port != 0
    except ValueError:  # The port is no number, or too large.
        is_network, url = False, urlsplit("")
    if not (is_network and _DATABASE.match(url.path)) and not (url.scheme == "unix" and url.path):
        raise ValueError(
            "must be redis://:PASSWORD@HOST:PORT, rediss://... for TLS or unix:///PATH; "
            "write each of the characters %/?#@[] of a password as % and two hex digits"
        )


def parse_host(text: str) -> str:
    """Return a host in its canonical form: in lower case; IPv6 compressed and without brackets."""
    if text.startswith("[") and text.endswith("]"):
        return _parse_ipv6(text[1:-1])
    if ":" in text:
        raise ValueError(f"an IPv6 address must be in brackets: [{text}]")
    if text and not text.strip("0123456789."):
        try:
            return str(IPv4Address(text))
        except ValueError:
            raise ValueError(f"{text!r} is not an IPv4 address") from None
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII; write the name in its xn-- form")
    name = text.removesuffix(".")
    if len(name) > 253 or not all(_LABEL.match(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not a host name")
    return name.lower()


def parse_replica_url(text: str) -> ReplicaUrl:
    """Parses a replica's URL. Without a port, the URL has the default port of its scheme."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if "," in (rest or text).partition("/")[0]:
        raise ValueError(f"{text!r} is more than one URL; give each by itself")
    if not separator:
        raise ValueError(f"{text!r} has no scheme; write http://{text}")
    if scheme not in _DEFAULT_PORT:
        raise ValueError(f"the scheme {scheme!r} is not supported; use http:// or https://")
    authority, slash, path = rest.partition("/")
    if "?" in rest or "#" in rest:
        raise ValueError("a replica's URL must not have a query or a fragment")
    if "@" in authority:
        raise ValueError("credentials do not belong in the URL; use upstream.token_file")
    if not authority:
        raise ValueError(f"{text!r} has no host")

    host, port = authority, _DEFAULT_PORT[scheme]
    before, colon, after = authority.rpartition(":")
    if colon and not after.endswith("]"):
        host, port = before, _parse_port(after, lowest=1)
    base_path = (slash + path).rstrip("/")
    if not _PATH.match(base_path) or {".", ".."} & set(base_path.split("/")):
        raise ValueError(f"{base_path!r} is not a usable path prefix")
    if base_path.endswith("/v1"):
        raise ValueError("leave out the /v1: the path of each request is appended to the URL")
    return ReplicaUrl(scheme, parse_host(host), port, base_path)


def _parse_ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError("an IPv6 address with a zone is not supported")
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv6 address") from None


def _parse_port(text: str, *, lowest: int) -> int:
    if not _PORT.match(text) or not lowest <= int(text) <= 65535:
        raise ValueError(f"{text!r} is not a port ({lowest} to 65535)")
    return int(text)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
