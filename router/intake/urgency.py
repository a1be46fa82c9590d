"""Determines the urgency of a request: its priority class, or a number between two classes.

The first of these sources that has a value sets the urgency. The ceiling of the client's key then
limits the urgency.

1. the body's `priority`: a name (critical, high, normal, low, batch), or a number in the dialect of
   the pool (see below);
2. the header `x-priority`: the same names, and numbers of the router's own scale;
3. the body's `service_tier`, if the configuration maps its values to classes;
4. the rules of the configuration: a header, a model, a client's network;
5. the path: `/v1/batch/...` or `/v1/priority/...`, whose second part is removed before forwarding;
6. the tier of the client's API key;
7. the default.

Existing clients send numbers for their engine, so by default a number in a body has the meaning
that the pool's engine gives it. `priority.dialect` and `priority.dialects` change this.

    dialect                          normal   critical   high   low   batch    range
    hedgerow: the router's scale     2        0          1      3     4        0 to 4
    engine: lower is more urgent     0        < -30      -10    10    >= 30    any number
    engine: higher is more urgent    0        > 30       10     -10   <= -30   any number
    engine: a share from 0 to 1      0.5      1          0.75   0.25  0        0 to 1

A number between two columns belongs to the nearest class and orders requests within it. The number
that an engine uses by default is always class normal. Each engine's file defines how it reads
numbers (`Dialect.read`, `fleet/engines`). A number is ignored if the pool's engines have different
dialects or no priorities, or if no engine has been detected yet. Ignored numbers are counted in
`ignored`.

The ceiling is the most urgent class that a request may have:

- with a known key: the key's own ceiling, else the class of its tier, else `priority.ceiling`;
- without a known key: `priority.ceiling`, or the class of the least urgent tier that a key in the
  keys file has, if that class is less urgent. So a client gains nothing by sending no key.

Must never: keep a reference to a body's bytes, or accept an invalid number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import isfinite
from typing import Final, NoReturn

import msgspec

from router.config.model import Priority as Rules, PriorityRule
from router.core.client_address import address_in, counted_network
from router.core.errors import Reason, RouterError
from router.core.numbers import decimal_number
from router.core.urgency import (
    BATCH,
    CLASSES,
    HIGH,
    NORMAL,
    NUMBERS,
    Urgency,
    clamped,
    within,
)
from router.fleet.engines.common.registry import DIALECTS
from router.intake.fields import Fields
from router.intake.keys import Key
from router.intake.values import NULL, value_of

# The beginnings of paths that name a priority class. `/v1/batches` does not match because of the
# slash.
CLASS_PATHS: Final = {b"/v1/batch/": BATCH, b"/v1/priority/": HIGH}
_PATHS: Final = tuple(CLASS_PATHS)

_LONGEST: Final = 64  # maximum bytes of a priority; no name and no useful number is longer
_NAMES: Final = {
    spelling: number
    for number, name in enumerate(CLASSES)
    for spelling in (name.encode(), b'"%b"' % name.encode())
}
_ALLOWED: Final = f"one of {', '.join(CLASSES)}, or a number"
_OUR_NUMBERS: Final = ", from 0 (critical) to 4 (batch)"

SOURCES: Final = ("body", "header", "service_tier", "rule", "endpoint", "key", "default")

# -- meaning of an existing client's numbers -----------------------------------------------------

BY_ENGINE: Final = "engine"  # the configuration's word for the dialect of the pool's engine
OURS: Final = "hedgerow"  # the configuration's word for the router's own scale
IGNORED: Final = -1.0  # the result of `read_field` if the client's number is ignored


def is_dialect(name: str) -> bool:
    """Return whether numbers have a meaning in the dialect `name`."""
    return name == OURS or name in DIALECTS


def number_in(dialect: str, number: float) -> float:
    """Converts a client's finite number to the router's scale. Requires `is_dialect(dialect)`."""
    return within(number if dialect == OURS else DIALECTS[dialect].read(number))


# The urgency of requests that do not run a model. It has no effect.
UNSAID: Final = Urgency(float(NORMAL), "")

# -- sources in a request ------------------------------------------------------------------------


def class_in_path(target: bytes) -> tuple[int, bytes]:
    """Return the priority class that a target names, and the target without the class.

    Returns -1 and the unchanged target if the target names no class.
    """
    if target.startswith(_PATHS):
        for prefix, number in CLASS_PATHS.items():
            if target.startswith(prefix):
                return number, b"/v1/" + target[len(prefix) :]
    return -1, target


def read_field(field: msgspec.Raw, dialect: str) -> float:
    """Reads the body's `priority`, which is present and not null.

    Returns IGNORED for a number if `dialect` is not known. Raises RouterError (BAD_PRIORITY).
    """
    if len(field) <= _LONGEST:
        written = bytes(field)
        usual = _NAMES.get(written)
        if usual is not None:
            return float(usual)
        value = value_of(msgspec.Raw(written))
        if isinstance(value, str):
            named = NUMBERS.get(value.strip().lower())
            if named is not None:
                return float(named)
        elif isinstance(value, bool):
            pass
        elif isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
            return number_in(dialect, float(value)) if is_dialect(dialect) else IGNORED
    _refuse("`priority`", _numbers_of(dialect), "priority")


def _numbers_of(dialect: str) -> str:
    """Return what numbers mean in a body. `dialect`: see `read_field`."""
    if not is_dialect(dialect):
        return ", which has no effect here"
    if dialect == OURS:
        return _OUR_NUMBERS
    read = DIALECTS[dialect].read
    first = "lower" if read(0.0) < read(1.0) else "higher"
    return f" as the engine reads it ({dialect}: {first} numbers are more urgent)"


def read_header(value: bytes) -> float:
    """Reads the value of the header x-priority. Raises RouterError (BAD_PRIORITY)."""
    usual = _NAMES.get(value)
    if usual is not None:
        return float(usual)
    if len(value) <= _LONGEST:
        word = value.strip().strip(b'"')
        named = NUMBERS.get(word.decode("ascii", "replace").lower())
        if named is not None:
            return float(named)
        number = decimal_number(word)
        if number is not None:
            return within(number)
    _refuse("the header x-priority", _OUR_NUMBERS, None)


def _refuse(what: str, numbers: str, param: str | None) -> NoReturn:
    raise RouterError(Reason.BAD_PRIORITY, f"{what} must be {_ALLOWED}{numbers}", param=param)


# -- rules ----------------------------------------------------------------------------------------


class _Rule:
    """A rule of the configuration, prepared for fast comparisons."""

    __slots__ = ("_holds", "_model", "_model_begins", "_name", "_value", "_value_begins", "number")

    def __init__(self, rule: PriorityRule) -> None:
        self.number = NUMBERS[rule.priority]
        self._name = b"\r\n" + rule.header.lower().encode("ascii") + b":" if rule.header else b""
        value = rule.value.encode()
        self._value_begins = value.endswith(b"*")
        self._value = value[:-1] if self._value_begins else value
        self._model_begins = rule.model.endswith("*")
        self._model = rule.model[:-1] if self._model_begins else rule.model
        self._holds = _network(rule.network) if rule.network else None

    def fits(self, model: str | None, lines: bytes, lower: bytes, client: str) -> bool:
        """Return whether all conditions of the rule hold. `lower`: `lines` in lower case."""
        if self._model or self._model_begins:
            if model is None:
                return False
            if not (model.startswith(self._model) if self._model_begins else model == self._model):
                return False
        if self._name and not self._has_header(lines, lower):
            return False
        return self._holds is None or self._holds(client)

    def _has_header(self, lines: bytes, lower: bytes) -> bool:
        at = lower.find(self._name)
        while at >= 0:
            start = at + len(self._name)
            end = lines.find(b"\r", start)
            value = (lines[start:end] if end >= 0 else lines[start:]).strip(b" \t")
            if self._value_begins:
                if value.startswith(self._value):
                    return True
            elif not self._value or value == self._value:
                return True
            at = lower.find(self._name, start)
        return False


def _network(text: str) -> Callable[[str], bool]:
    network = counted_network(text)

    @lru_cache(maxsize=4096)
    def holds(client: str) -> bool:
        address = address_in(client)
        return address is not None and address in network

    return holds


# -- the judge ------------------------------------------------------------------------------------


class Judge:
    """Determines the urgency of requests.

    `clamped`: the number of requests whose urgency the ceiling lowered, by source and resulting
    class. `ignored`: how many numbers of clients were ignored, by dialect.
    """

    __slots__ = (
        "_ceiling",
        "_default",
        "_dialect",
        "_dialects",
        "_is_plain",
        "_open_ceiling",
        "_open_default",
        "_rules",
        "_service_tiers",
        "_shared",
        "_tiers",
        "clamped",
        "ignored",
        "uses_networks",
    )

    def __init__(
        self, rules: Rules, tiers: Iterable[str] = (), before: Judge | None = None
    ) -> None:
        """`tiers`: the tiers of the keys in the keys file. `before`: the judge of the configuration
        before a reload, whose counts go on."""
        self.clamped = {source: [0] * len(CLASSES) for source in SOURCES}
        self.ignored: dict[str, int] = {}
        if before is not None:
            self.clamped, self.ignored = before.clamped, before.ignored
        # The urgencies with whole numbers, which requests share, by source and class.
        self._shared = {
            source: [Urgency(float(number), source) for number in range(len(CLASSES))]
            for source in SOURCES
        }
        self._dialect: str = rules.dialect
        self._dialects: dict[str, str] = {**rules.dialects}
        self._rules = [_Rule(rule) for rule in rules.rules]
        # Whether a rule compares the client's address.
        self.uses_networks = any(rule.network for rule in rules.rules)
        self._service_tiers = {word: NUMBERS[name] for word, name in rules.service_tier.items()}
        self._tiers = {tier: NUMBERS[name] for tier, name in rules.tiers.items()}
        self._ceiling = NUMBERS[rules.ceiling]
        in_use = [self._tiers[tier] for tier in tiers if tier in self._tiers]
        self._open_ceiling = max([self._ceiling, *in_use])
        default = NUMBERS[rules.default]
        self._default = self._shared["default"][max(default, self._ceiling)]
        self._open_default = self._shared["default"][max(default, self._open_ceiling)]
        self._is_plain = not self._rules and not self._service_tiers

    @property
    def open_ceiling(self) -> str:
        """The most urgent class of requests without a known key."""
        return CLASSES[self._open_ceiling]

    def ceiling_of(self, key: Key | None) -> int:
        """Return the most urgent class that a key's requests may have.

        `None` stands for requests without a known key.
        """
        if key is None:
            return self._open_ceiling
        if key.ceiling >= 0:
            return key.ceiling
        return self._tiers.get(key.tier, self._ceiling)

    def urgency(
        self,
        fields: Fields,
        header: bytes | None,
        path_class: int,
        lines: bytes,
        client: str,
        key: Key | None,
        pool: str,
    ) -> Urgency:
        """Return the urgency of a request. Raises RouterError (BAD_PRIORITY).

        `header`: the value of x-priority. `path_class`: the class from `class_in_path`. `lines`:
        the forwarded header lines, each with a CRLF before it. `client`: the client's address, as
        `Addresses.of` returns it; it is read only with `uses_networks`. `pool`: the dialect of the
        engines that serve the model.
        """
        field = fields.priority
        if field is None and header is None and path_class < 0 and key is None and self._is_plain:
            return self._open_default
        number = -1.0
        source = "default"
        if field is not None and field != NULL:
            dialect = self._dialect
            if self._dialects and fields.model is not None:
                dialect = self._dialects.get(fields.model, dialect)
            if dialect == BY_ENGINE:
                dialect = pool
            number, source = read_field(field, dialect), "body"
            if number < 0.0:
                self.ignored[dialect] = self.ignored.get(dialect, 0) + 1
        if number < 0.0:
            if header:
                number, source = read_header(header), "header"
            elif self._service_tiers:
                number, source = self._by_service_tier(fields), "service_tier"
        if number < 0.0 and self._rules:
            number, source = self._by_rules(fields.model, lines, client), "rule"
        if number < 0.0:
            if path_class >= 0:
                number, source = float(path_class), "endpoint"
            elif key is not None and key.tier in self._tiers:
                number, source = float(self._tiers[key.tier]), "key"
            else:
                usual = self._open_default if key is None else self._default
                number, source = usual.number, "default"
        ceiling = self.ceiling_of(key)
        if number < ceiling:
            number = clamped(number, ceiling)
            if source != "default":
                self.clamped[source][ceiling] += 1
        rank = int(number)
        return self._shared[source][rank] if rank == number else Urgency(number, source)

    def _by_service_tier(self, fields: Fields) -> float:
        raw = fields.other("service_tier")
        word = value_of(raw) if raw is not None and len(raw) <= _LONGEST else None
        return float(self._service_tiers.get(word, -1)) if isinstance(word, str) else -1.0

    def _by_rules(self, model: str | None, lines: bytes, client: str) -> float:
        lower = lines.lower()
        for rule in self._rules:
            if rule.fits(model, lines, lower, client):
                return float(rule.number)
        return -1.0
