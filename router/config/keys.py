"""The lines of the keys file, with the hashes of the API keys: reads lines, and makes new ones.

Each line of the file is a JSON object. Empty lines and lines that begin with `#` are ignored. The
member `hash` is "sha256:" and the SHA-256 hash of the key in hexadecimal digits. SHA-256 is enough
for random keys of at least 128 bits, which `hedgerow key` creates. A slow hash, as for passwords,
would make every request slower. Keys with the same `name` belong to one tenant and share its
limits, so that a new key can be issued before the old key is removed. Their lines must be equal
except for `hash` and `expires`.

`key_files.py` reads the files. Must never: store or print a key itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from math import inf
from secrets import token_urlsafe
from typing import Annotated, Any, Final

import msgspec

from router.config.decode import decode
from router.config.model.setting_types import Count, Weight
from router.config.model.tenants import ClassName
from router.config.problems import Problems
from router.core.unreadable import NOT_JSON

PREFIX: Final = "hr-"  # the prefix of generated keys, by which secret scanners recognise them
_BITS: Final = 256
SHORTEST: Final = 20  # minimum characters of a key; a shorter key can be guessed
LONGEST: Final = 512
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
SloMs = Annotated[float, msgspec.Meta(ge=0.001, le=1e9)]
Budget = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
# A valid name of a region. Names appear in metric labels, in response headers and in the names of
# the queue's lanes.
REGION: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
REGION_RULE: Final = "the name of a region is 1 to 64 letters, digits and ._-"
# A valid name of a key. Names appear in log lines and metric labels.
_NAME: Final = re.compile(r"[A-Za-z0-9._:@+-]{1,100}\Z")


class ModelBudgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budgets of one tenant for one model."""

    tokens_per_day: Budget | None = None
    tokens_per_week: Budget | None = None
    tokens_per_month: Budget | None = None
    cost_per_day: Budget | None = None
    cost_per_week: Budget | None = None
    cost_per_month: Budget | None = None


class KeyLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One line of the keys file.

    A limit that is not set does not apply. Another field that is not set has its general default.
    """

    name: str  # the name of the tenant to which the key belongs
    hash: str
    # When the key expires: a date such as 2026-12-31, which means midnight UTC at its beginning, or
    # a time such as 2026-12-31T18:00:00Z; "": never. Keys with the same name may differ in it.
    expires: str = ""
    # A tier of `priority.tiers`, which sets the priority class of the key's requests.
    tier: str = ""
    # The most urgent class that the key's requests may have; None: the class of its tier.
    ceiling: ClassName | None = None
    # The models, including adapters, that the key may use; None: all models.
    models: tuple[str, ...] | None = None
    # The maximum number of requests at replicas at once. Further requests wait in the queue;
    # without a queue they return 429. This limit and the next two apply to all classes except
    # batch, which gets what the other classes leave (`admission/limits.py`).
    concurrency: Count | None = None
    requests_per_minute: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    tokens_per_minute: Annotated[float, msgspec.Meta(gt=0, le=1e12)] | None = None
    # The budgets of the tenant: the tokens (prompt and output), and the money by `usage.prices`,
    # that it may use in a day, a week and a month. Days, weeks (from Monday) and months begin at
    # midnight in `usage.time_zone`. A tenant over its budget gets 429 until the period is over.
    # Budgets apply to all classes.
    tokens_per_day: Budget | None = None
    tokens_per_week: Budget | None = None
    tokens_per_month: Budget | None = None
    cost_per_day: Budget | None = None
    cost_per_week: Budget | None = None
    cost_per_month: Budget | None = None
    # The budgets for single models, in addition. A model has the name that replicas are asked for.
    # A model's budget that a reload adds begins at 0: what the key used before is not counted.
    model_budgets: dict[str, ModelBudgets] = {}
    weight: Weight = 1.0  # the tenant's share of the fleet in proportion to other tenants' weights
    # The SLOs of the key's requests in milliseconds, instead of the SLOs of their class. A client
    # with this key cannot set shorter SLOs. They apply to all classes except batch.
    ttft_slo_ms: SloMs | None = None
    tpot_slo_ms: SloMs | None = None
    names_users: bool = False  # whether requests with this key may name a user of the tenant
    # The region that requests with this key prefer; "": the region of the client's network.
    region: str = ""
    # The only regions to which requests with this key may be sent (data residency); None: all
    # regions. A request is refused rather than sent to another region.
    allowed_regions: tuple[str, ...] | None = None
    may_hedge: bool = False  # whether requests with this key may ask for hedging (`x-hedge: on`)

    @property
    def has_budget(self) -> bool:
        tokens = self.tokens_per_day or self.tokens_per_week or self.tokens_per_month
        cost = self.cost_per_day or self.cost_per_week or self.cost_per_month
        return bool(tokens or cost or self.model_budgets)


class KeysProblem(Exception):
    """The keys cannot be used. The error message states the number of the invalid line.

    `field`: the setting in the section `keys` that names the file.
    """

    def __init__(self, text: str, field: str = "file") -> None:
        super().__init__(text)
        self.field = field


_decode = msgspec.json.Decoder(KeyLine).decode


def hash_of(key: bytes) -> str:
    """Return the hash of a key in the form that the keys file contains."""
    return "sha256:" + hashlib.sha256(key).hexdigest()


def new_key() -> str:
    return PREFIX + token_urlsafe(_BITS // 8)


def line_of(line: KeyLine) -> str:
    """Return a line for the keys file, without a line end and without fields at their default."""
    return msgspec.json.encode(line).decode()


def parse_keys(raw: bytes) -> tuple[KeyLine, ...]:
    """Reads all lines of a keys file from its content. Raises KeysProblem for the first error."""
    return parse_sources([("", raw)])


def parse_sources(sources: Iterable[tuple[str, bytes]]) -> tuple[KeyLine, ...]:
    """Reads all lines of several sources as one keys file.

    Each source is a prefix for the numbers of its lines in error messages, and its content. Raises
    KeysProblem for the first error.
    """
    found: list[KeyLine] = []
    hashes: dict[str, str] = {}
    tenants: dict[str, tuple[str, KeyLine]] = {}
    for prefix, raw in sources:
        for number, text in enumerate(BytesIO(raw), 1):
            text = text.strip()
            if not text or text.startswith(b"#"):
                continue
            here = f"{prefix}line {number}"
            line = _line(text, here)
            before = hashes.setdefault(line.hash, here)
            if before != here:
                raise KeysProblem(f"{here}: the same key as {before}")
            first, other = tenants.setdefault(line.name, (here, line))
            if other is not line and _differ(other, line):
                raise KeysProblem(
                    f"{here}: the settings of {line.name} differ from {first}; "
                    "all keys with the same name share their limits"
                )
            found.append(line)
    return tuple(found)


def _differ(one: KeyLine, other: KeyLine) -> bool:
    return msgspec.structs.replace(one, hash=other.hash, expires=other.expires) != other


def expiry_of(line: KeyLine) -> float:
    """Return when the key expires, in seconds since 1970; infinity: never. Raises ValueError."""
    if not line.expires:
        return inf
    try:
        at = datetime.fromisoformat(line.expires)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        text = f"{line.expires[:40]!r} is not a date such as 2026-12-31 or 2026-12-31T18:00:00Z"
        raise ValueError(text) from None


def checked(fields: dict[str, Any]) -> tuple[KeyLine, str]:
    """Return the line with these fields, and all errors in one text.

    If the text is not empty, the line is invalid.
    """
    problems = Problems()
    line = decode(KeyLine, fields, problems)
    return line, "; ".join(problems.lines)


def _explained(text: bytes) -> str:
    """Return the errors of a line that is JSON but no KeyLine; "" if it is not an object."""
    try:
        fields = msgspec.json.decode(text)
    except NOT_JSON:  # the type error comes before the error in the syntax
        return ""
    return checked(fields)[1] if isinstance(fields, dict) else ""


def _line(text: bytes, here: str) -> KeyLine:
    try:
        line = _decode(text)
    except msgspec.ValidationError as err:
        raise KeysProblem(f"{here}: {_explained(text) or err}") from None
    except NOT_JSON as err:
        raise KeysProblem(f"{here}: not JSON: {err}; `hedgerow key` prints a line") from None
    if why := _rule(line):
        raise KeysProblem(f"{here}: {why}")
    return line


def _rule(line: KeyLine) -> str:
    """Return the rule that a line breaks; "" if it is valid."""
    if not _NAME.match(line.name):
        return "a name is 1 to 100 letters, digits and ._:@+-"
    if not _HASH.match(line.hash):
        return "a hash is sha256: and 64 hexadecimal digits"
    try:
        expiry_of(line)
    except ValueError as err:
        return f"expires: {err}"
    allowed, region = line.allowed_regions, line.region
    named = [*(allowed or ()), *([region] if region else [])]
    if not all(map(REGION.match, named)):
        return REGION_RULE
    if allowed == ():
        return "allowed_regions is empty; name regions, or remove it"
    if allowed and region and region not in allowed:
        return "region is not among allowed_regions"
    return ""
