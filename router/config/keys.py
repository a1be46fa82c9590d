"""The file of API keys: the format of a line, and how lines are read and made.

The file has one JSON object a line; empty lines and lines that begin with `#` are ignored. `hash`
is "sha256:" and the SHA-256 of the key in hexadecimal digits. SHA-256 is enough for random keys of
at least 128 bits, as `hedgerow key` draws them. (A slow hash protects short secrets, and its cost
would apply to every request.) Keys with the same `name` belong to one tenant and share its limits,
so that a new key can be issued before the old one is removed. Except for `hash`, their lines must
be equal.

Must never: store or print a key itself.
"""

from __future__ import annotations

import hashlib
import re
from secrets import token_urlsafe
from typing import Annotated, Final

import msgspec

from router.config.model import ClassName, Count, Weight
from router.core.unreadable import NOT_JSON

PREFIX: Final = "hr-"  # prefix of generated keys, which people and secret scanners recognise
_BITS: Final = 256
SHORTEST: Final = 20  # characters of a key; a shorter key can be guessed
LONGEST: Final = 512
_BYTES: Final = 64 * 1024 * 1024
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
SloMs = Annotated[float, msgspec.Meta(ge=0.001, le=1e9)]
# A name appears in log lines and metric labels.
_NAME: Final = re.compile(r"[A-Za-z0-9._:@+-]{1,100}\Z")


class KeyLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One line of the file. A field that is not given sets no limit, or uses the general
    default.
    """

    name: str  # the tenant of the key
    hash: str
    tier: str = ""  # one of `priority.tiers`: the class of its requests
    # The most urgent class of its requests; None: that of its tier.
    ceiling: ClassName | None = None
    models: tuple[str, ...] | None = None  # allowed models, including adapters; None: any
    # The limits apply to all classes but batch, which gets the rest (`admission/limits.py`).
    # Requests at replicas at once. More requests wait in the queue, or get 429 without a queue.
    concurrency: Count | None = None
    requests_per_minute: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    tokens_per_minute: Annotated[float, msgspec.Meta(gt=0, le=1e12)] | None = None
    weight: Weight = 1.0  # the tenant's share relative to other tenants
    # SLOs of its requests in milliseconds, instead of the SLOs of their class, and the shortest
    # ones that its clients may state. They apply to all classes but batch.
    ttft_slo_ms: SloMs | None = None
    tpot_slo_ms: SloMs | None = None
    names_users: bool = False  # its requests may name the tenant's user
    may_hedge: bool = False  # `x-hedge: on` is accepted in its requests


class KeysProblem(Exception):
    """The keys file cannot be used. The text of the error names the line."""


_decode = msgspec.json.Decoder(KeyLine).decode


def hash_of(key: bytes) -> str:
    """Returns the hash of a key, as the file contains it."""
    return "sha256:" + hashlib.sha256(key).hexdigest()


def new_key() -> str:
    """Returns a random key."""
    return PREFIX + token_urlsafe(_BITS // 8)


def line_of(line: KeyLine) -> str:
    """Returns a line of the file, without its line end. Fields at their default are left out."""
    return msgspec.json.encode(line).decode()


def read_keys(path: str) -> tuple[KeyLine, ...]:
    """Reads every line of the file. Raises KeysProblem for the first error."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_BYTES + 1)
    except (OSError, ValueError) as err:  # ValueError: a NUL byte in the path
        why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise KeysProblem(f"cannot be read: {why}") from None
    if len(raw) > _BYTES:
        raise KeysProblem(f"is larger than {_BYTES} bytes")
    return parse_keys(raw)


def parse_keys(raw: bytes) -> tuple[KeyLine, ...]:
    """The same as `read_keys`, for bytes that were already read."""
    found: list[KeyLine] = []
    hashes: dict[str, int] = {}
    tenants: dict[str, tuple[int, KeyLine]] = {}
    for number, text in enumerate(raw.split(b"\n"), 1):
        text = text.strip()
        if not text or text.startswith(b"#"):
            continue
        line = _line(text, number)
        before = hashes.setdefault(line.hash, number)
        if before != number:
            raise KeysProblem(f"line {number}: the same key as line {before}")
        first, other = tenants.setdefault(line.name, (number, line))
        if msgspec.structs.replace(other, hash=line.hash) != line:
            raise KeysProblem(
                f"line {number}: the settings of {line.name} differ from line {first}; "
                "all keys with the same name share their limits"
            )
        found.append(line)
    return tuple(found)


def _line(text: bytes, number: int) -> KeyLine:
    try:
        line = _decode(text)
    except NOT_JSON as err:
        raise KeysProblem(f"line {number}: {err}") from None
    if not _NAME.match(line.name):
        raise KeysProblem(f"line {number}: a name is 1 to 100 letters, digits and ._:@+-")
    if not _HASH.match(line.hash):
        raise KeysProblem(f"line {number}: a hash is sha256: and 64 hexadecimal digits")
    return line
