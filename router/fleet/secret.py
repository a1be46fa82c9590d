"""Hides a replica's credential in everything that the replica sends to clients.

A replica may repeat its credential: in an error text, a redirect, a reason phrase, or in the middle
of a stream. Each byte of it is replaced by `*`, so lengths do not change.

Pure: bytes in, bytes out. Must never: change another byte.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import msgspec

LEAST: Final = 8  # A shorter credential is not searched for, because it may be a word.


class Secret:
    """A credential, in the forms in which it may be written."""

    __slots__ = ("_pattern", "forms")

    def __init__(self, token: str) -> None:
        """`token`: at least `LEAST` visible ASCII characters."""
        in_json = msgspec.json.encode(token)[1:-1]
        forms = {token.encode(), in_json, in_json.replace(b"/", b"\\/"), quote(token, "").encode()}
        # The longest form first, because a form may contain another one.
        self.forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self.forms)))

    def hidden_in(self, text: bytes) -> bytes:
        """Return the text without the credential."""
        return self._pattern.sub(lambda found: b"*" * len(found.group()), text)


def secret_of(token: str) -> Secret | None:
    """Return the secret of a credential; `None`: it is too short to be searched for."""
    return Secret(token) if len(token) >= LEAST else None


class HiddenSecret:
    """Hides a credential in one body, whose bytes come in pieces."""

    __slots__ = ("_held", "_secret")

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._held = b""  # The beginning of the credential at the end of the last piece.

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to relay, given the next piece."""
        data = self._secret.hidden_in(self._held + data)
        held = max(_begun(form, data) for form in self._secret.forms)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def flush(self) -> bytes:
        """Return the bytes that are held at the end of the body."""
        held, self._held = self._held, b""
        return held


def _begun(form: bytes, data: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `form`."""
    at = data.rfind(form[:1], max(0, len(data) - len(form) + 1))
    found = 0
    while at >= 0:
        if form.startswith(data[at:]):
            found = len(data) - at
        at = data.rfind(form[:1], max(0, len(data) - len(form) + 1), at)
    return found
