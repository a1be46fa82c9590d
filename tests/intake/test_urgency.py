"""The sources of a request's urgency: their formats, their precedence and their limits."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.config.keys import KeyLine, hash_of
from router.config.model import Priority, PriorityRule
from router.core.errors import Reason, RouterError
from router.core.urgency import BATCH, CLASSES, HIGH
from router.fleet.engines.common.registry import DIALECTS
from router.intake.keys import Key
from router.intake.urgency import OURS, Judge, class_in_path, read_field, read_header
from tests.intake.members import made

ABSENT: Any = object()
SENSIBLE = st.floats(-1e9, 1e9)


def a_key(**fields: Any) -> Key:
    return Key(KeyLine(**{"name": "acme", "hash": hash_of(b"k"), **fields}))


def judged(
    body: Any = ABSENT,
    header: bytes | None = None,
    path_class: int = -1,
    lines: bytes = b"",
    peer: str = "10.0.0.1",
    key: Key | None = None,
    model: str | None = "m",
    service_tier: Any = ABSENT,
    pool: str = "unknown",
    tiers: tuple[str, ...] = (),
    **rules: Any,
) -> tuple[float, str, str]:
    """(number, class, source). With default `rules`: the router's own scale, without a ceiling."""
    fields = made(model=model)
    if body is not ABSENT:
        fields.priority = msgspec.Raw(json.dumps(body).encode())
    if service_tier is not ABSENT:
        fields.put("service_tier", msgspec.Raw(json.dumps(service_tier).encode()))
    judge = Judge(Priority(**{"dialect": "hedgerow", "ceiling": "critical", **rules}), tiers)
    found = judge.urgency(fields, header, path_class, lines, peer, key, pool)
    return found.number, found.name, found.source


@pytest.mark.parametrize(
    ("value", "number", "name"),
    [
        ("critical", 0.0, "critical"),
        ("High", 1.0, "high"),
        (" batch ", 4.0, "batch"),
        (0, 0.0, "critical"),
        (4, 4.0, "batch"),
        (-7, 0.0, "critical"),
        (99, 4.0, "batch"),
        (1.4, 1.4, "high"),
        (1.5, 1.5, "normal"),
        (2.0, 2.0, "normal"),
        (1e300, 4.0, "batch"),
    ],
)
def test_the_body(value: object, number: float, name: str) -> None:
    assert judged(value) == (number, name, "body")


REFUSED = [
    *(b"true", b"false", b"[]", b"[1]", b"{}", b'"urgent!"', b'""', b'"NaN"', b"1e400", b'"2"'),
    *(b"-1e400", b"NaN", b'"x"' * 100, b'"norm\\u00e1l"', b"1" * 100, b"Infinity", b'"\xff"'),
]


@pytest.mark.parametrize("written", REFUSED)
def test_what_the_body_may_not_say(written: bytes) -> None:
    with pytest.raises(RouterError) as caught:
        read_field(msgspec.Raw(written), "hedgerow")
    err = caught.value
    assert (err.reason, err.status, err.param) == (Reason.BAD_PRIORITY, 400, "priority")
    for word in (*CLASSES, "0", "4"):
        assert word in err.message


@pytest.mark.parametrize(
    ("dialect", "numbers"),
    [
        ("hedgerow", "or a number, from 0 (critical) to 4 (batch)"),
        ("vllm", "or a number as the engine reads it (vllm: lower numbers are more urgent)"),
        ("sglang", "or a number as the engine reads it (sglang: higher numbers are more urgent)"),
        ("trtllm", "or a number as the engine reads it (trtllm: higher numbers are more urgent)"),
        ("none", "or a number, which has no effect here"),
    ],
)
def test_the_text_says_what_numbers_mean_in_the_body(dialect: str, numbers: str) -> None:
    with pytest.raises(RouterError) as caught:
        read_field(msgspec.Raw(b'"urgent!"'), dialect)
    names = "critical, high, normal, low, batch"
    assert caught.value.message == f"`priority` must be one of {names}, {numbers}"


@pytest.mark.parametrize(
    ("header", "number"),
    [
        (b"high", 1.0),
        (b"  Low ", 3.0),
        (b'"batch"', 4.0),
        (b"3", 3.0),
        (b"0.2", 0.2),
        (b"-4", 0.0),
        (b"1e3", 4.0),
    ],
)
def test_the_header(header: bytes, number: float) -> None:
    assert judged(header=header)[::2] == (number, "header")


@pytest.mark.parametrize(
    "header",
    [b"nan", b"inf", b"-Infinity", b"1_0", b"+1", b"\xff", b"1" * 100, b"urgent", b"true", b" "],
)
def test_what_the_header_may_not_say(header: bytes) -> None:
    with pytest.raises(RouterError) as caught:
        read_header(header)
    assert (caught.value.reason, caught.value.param) == (Reason.BAD_PRIORITY, None)
    assert caught.value.message.endswith(", or a number, from 0 (critical) to 4 (batch)")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_number_or_refused(written: bytes) -> None:
    for read in (read_header, lambda raw: read_field(msgspec.Raw(raw or b"x"), "vllm")):
        try:
            assert 0.0 <= read(written) <= 4.0
        except RouterError as err:
            assert err.reason is Reason.BAD_PRIORITY


BATCHES = PriorityRule(priority="batch", header="X-Application", value="nightly-*")
EMBEDDERS = PriorityRule(priority="low", model="embed-*")
OFFICE = PriorityRule(priority="high", network="10.0.0.0/8")


def test_the_first_that_says_something_decides() -> None:
    """Add one source of the priority at a time, from the last to the first."""
    said: dict[str, Any] = {"default": "low"}
    assert judged(**said) == (3.0, "low", "default")
    said["key"] = a_key(tier="pro", ceiling="critical")
    assert judged(**said) == (2.0, "normal", "key")
    said["path_class"] = BATCH
    assert judged(**said) == (4.0, "batch", "endpoint")
    said["rules"] = (OFFICE,)
    assert judged(**said) == (1.0, "high", "rule")
    said["service_tier"] = "flex"
    assert judged(**said) == (1.0, "high", "rule"), "that field means nothing by itself"
    assert judged(header=b"0", **said) == (0.0, "critical", "header")
    assert judged("low", header=b"0", **said) == (3.0, "low", "body")
    assert judged(None, header=b"0", **said) == (0.0, "critical", "header"), "null says nothing"
    assert judged(header=b"", **said) == (1.0, "high", "rule"), "nor does an empty field"


def test_service_tier_means_what_the_configuration_says() -> None:
    fields = made(service_tier=msgspec.Raw(b'"flex"'))
    judge = Judge(Priority(service_tier={"flex": "batch"}, rules=(OFFICE,)))
    assert judge.urgency(fields, None, -1, b"", "10.0.0.1", None, "vllm").name == "batch"
    for written in (b'"auto"', b"null", b"5", b'["flex"]'):
        fields.put("service_tier", msgspec.Raw(written))
        assert judge.urgency(fields, None, -1, b"", "10.0.0.1", None, "vllm").source == "rule"


@pytest.mark.parametrize(
    ("rule", "lines", "model", "peer", "fits"),
    [
        (BATCHES, b"\r\nX-APPLICATION:nightly-7", "m", "::1", True),
        (BATCHES, b"\r\nA: b\r\nx-application:  nightly- \r\nC: d", "m", "::1", True),
        (BATCHES, b"\r\nx-application: a nightly-7", "m", "::1", False),
        (BATCHES, b"\r\nx-application: Nightly-7", "m", "::1", False),
        (BATCHES, b"\r\nx-application2: nightly-7", "m", "::1", False),
        (BATCHES, b"\r\nx-application: a\r\nx-application: nightly-7", "m", "::1", True),
        (EMBEDDERS, b"", "embed-large", "::1", True),
        (EMBEDDERS, b"", "my-embed-large", "::1", False),
        (EMBEDDERS, b"", None, "::1", False),
        (PriorityRule(priority="low", model="m"), b"", "m", "::1", True),
        (PriorityRule(priority="low", model="m"), b"", "m2", "::1", False),
        (PriorityRule(priority="low", header="x-a"), b"\r\nX-A: anything", "m", "::1", True),
        (PriorityRule(priority="low", header="x-a"), b"\r\nX-B: x-a: b", "m", "::1", False),
        (OFFICE, b"", "m", "10.255.0.1", True),
        (OFFICE, b"", "m", "11.0.0.1", False),
        (OFFICE, b"", "m", "not an address", False),
        (PriorityRule(priority="low", network="fd00::/8"), b"", "m", "fd00::7", True),
        (PriorityRule(priority="low", network="fd00::/8"), b"", "m", "fd00::/64", True),
        (PriorityRule(priority="low", network="fd00::/8"), b"", "m", "fc00::/64", False),
        (PriorityRule(priority="low", network="fd00::7/128"), b"", "m", "fd00::/64", True),
        (OFFICE, b"", "m", "::ffff:10.0.0.1", True),
        (PriorityRule(priority="low", model="m", header="x-a"), b"", "m", "::1", False),
    ],
)
def test_rules(rule: PriorityRule, lines: bytes, model: str | None, peer: str, fits: bool) -> None:
    found = judged(lines=lines, model=model, peer=peer, rules=(rule,))
    assert found[1:] == ((rule.priority, "rule") if fits else ("normal", "default"))


def test_the_first_rule_that_fits() -> None:
    rules = (EMBEDDERS, OFFICE, BATCHES)
    assert judged(model="embed-1", lines=b"\r\nx-application: nightly-1", rules=rules)[1] == "low"
    assert judged(lines=b"\r\nx-application: nightly-1", peer="::1", rules=rules)[1] == "batch"


@pytest.mark.parametrize(
    ("key", "asks", "gets"),
    [
        (None, "critical", "high"),  # the ceiling of clients without a ceiling of their own
        (a_key(), "critical", "high"),
        (a_key(tier="free"), "critical", "low"),  # the tier of the key is its ceiling
        (a_key(tier="free"), "batch", "batch"),
        (a_key(tier="free", ceiling="critical"), "critical", "critical"),
        (a_key(tier="enterprise", ceiling="normal"), "high", "normal"),
        (a_key(tier="unheard-of"), "critical", "high"),
    ],
)
def test_ceilings(key: Key | None, asks: str, gets: str) -> None:
    assert judged(asks, key=key, ceiling="high")[1] == gets
    assert judged(header=asks.encode(), key=key, ceiling="high")[1] == gets


def test_rules_endpoints_and_tiers_have_a_ceiling_too() -> None:
    key = a_key(tier="enterprise", ceiling="low")
    assert judged(key=key) == (3.0, "low", "key")
    assert judged(key=key, path_class=HIGH) == (3.0, "low", "endpoint")
    assert judged(key=key, rules=(OFFICE,)) == (3.0, "low", "rule")
    assert judged(key=a_key(ceiling="batch")) == (4.0, "batch", "default")


def test_an_unknown_tier_gets_the_default() -> None:
    assert judged(key=a_key(tier="gold")) == (2.0, "normal", "default")


def test_applied_ceilings_are_counted_by_source_and_class() -> None:
    judge = Judge(Priority(ceiling="high"))
    for header in (b"critical", b"0.5", b"high", b"low", None):
        judge.urgency(made(), header, -1, b"", "::1", None, "vllm")
    assert judge.clamped["header"] == [0, 2, 0, 0, 0]
    assert sum(map(sum, judge.clamped.values())) == 2


@given(st.sampled_from(sorted([OURS, *DIALECTS])), SENSIBLE, st.sampled_from(CLASSES))
def test_no_request_exceeds_its_ceiling(dialect: str, number: float, ceiling: Any) -> None:
    found, name, _ = judged(number, dialect=dialect, ceiling=ceiling)
    assert CLASSES.index(name) >= CLASSES.index(ceiling)
    assert found >= CLASSES.index(ceiling)


# Dialects of clients.


@pytest.mark.parametrize(
    ("dialect", "number", "name"),
    [
        ("vllm", 0, "normal"),
        ("vllm", 3, "normal"),
        ("vllm", 10, "low"),  # not "beyond batch"
        ("vllm", 100, "batch"),
        ("vllm", -10, "high"),
        ("vllm", -(2**63), "critical"),
        ("sglang", 0, "normal"),
        ("sglang", 10, "high"),
        ("sglang", -10, "low"),
        ("sglang", 2**63 - 1, "critical"),
        ("trtllm", 0.5, "normal"),
        ("trtllm", 1.0, "critical"),
        ("trtllm", 0.75, "high"),
        ("trtllm", 0, "batch"),
        ("hedgerow", 1, "high"),
    ],
)
def test_what_a_number_of_an_existing_client_means(dialect: str, number: float, name: str) -> None:
    assert judged(number, dialect=dialect)[1] == name


def test_a_pool_has_its_own_dialect() -> None:
    rules: dict[str, Any] = {"dialect": "vllm", "dialects": {"t": "trtllm"}}
    assert judged(1, model="t", **rules)[1] == "critical"
    assert judged(1, model="v", **rules)[1] == "normal"
    assert judged(1, model=None, **rules)[1] == "normal"


# A number without a configured format is read in the format of the pool's engine.


@pytest.mark.parametrize("pool", ["unknown", "mixed", "none"])
def test_a_number_without_a_meaning_is_ignored_and_counted(pool: str) -> None:
    judge = Judge(Priority())
    for number in (b"0", b"4", b"-7.5"):
        fields = made(model="m", priority=msgspec.Raw(number))
        found = judge.urgency(fields, None, -1, b"", "::1", None, pool)
        assert (found.name, found.source) == ("normal", "default")
    fields = made(model="m", priority=msgspec.Raw(b"0"))
    assert judge.urgency(fields, b"low", -1, b"", "::1", None, pool).source == "header"
    assert judge.urgency(fields, None, BATCH, b"", "::1", None, pool).source == "endpoint"
    assert judge.ignored == {pool: 5}
    assert Judge(Priority(), (), judge).ignored == {pool: 5}, "a reload keeps the counts"
    fields = made(model="m", priority=msgspec.Raw(b'"low"'))
    assert judge.urgency(fields, None, -1, b"", "::1", None, pool).name == "low", "a name is ours"
    with pytest.raises(RouterError):
        judge.urgency(
            made(model="m", priority=msgspec.Raw(b"true")), None, -1, b"", "::1", None, pool
        )


def test_a_configured_dialect_goes_before_the_pools() -> None:
    rules: dict[str, Any] = {"dialect": "vllm", "dialects": {"m": "engine", "n": "hedgerow"}}
    assert judged(10, model="m", pool="sglang", **rules)[1] == "high"
    assert judged(0, model="n", pool="sglang", **rules)[1] == "critical"
    assert judged(10, model="o", pool="sglang", **rules)[1] == "low"


# Requests without a key.


def test_a_request_without_a_key_is_not_critical_by_default() -> None:
    judge = Judge(Priority())
    for header in (b"critical", b"0"):
        assert judge.urgency(made(), header, -1, b"", "::1", None, "vllm").name == "high"
    assert judge.urgency(made(), None, HIGH, b"", "::1", None, "vllm").name == "high"
    assert judge.open_ceiling == "high"


@pytest.mark.parametrize(
    ("tiers", "asks", "gets"),
    [
        ((), "critical", "high"),
        (("enterprise",), "critical", "high"),
        (("enterprise", "pro"), "high", "normal"),
        (("enterprise", "free"), "critical", "low"),
        (("enterprise", "free"), "batch", "batch"),
        (("unheard-of",), "critical", "high"),
    ],
)
def test_leaving_the_key_away_gains_nothing(tiers: tuple[str, ...], asks: str, gets: str) -> None:
    assert judged(asks, tiers=tiers, ceiling="high")[1] == gets


def test_the_default_class_without_a_key_has_the_ceiling_too() -> None:
    assert judged(tiers=("free",), ceiling="high") == (3.0, "low", "default")
    assert judged(tiers=("free",), ceiling="high", key=a_key())[1] == "normal"


# Endpoints.


@pytest.mark.parametrize(
    ("target", "path_class", "rest"),
    [
        (b"/v1/batch/chat/completions", BATCH, b"/v1/chat/completions"),
        (b"/v1/priority/completions?x=1", HIGH, b"/v1/completions?x=1"),
        (b"/v1/batches", -1, b"/v1/batches"),
        (b"/v1/batches/b1/cancel", -1, b"/v1/batches/b1/cancel"),
        (b"/v1/batch", -1, b"/v1/batch"),
        (b"/v1/prioritychat", -1, b"/v1/prioritychat"),
        (b"/x/v1/batch/chat/completions", -1, b"/x/v1/batch/chat/completions"),
        (b"/v1/batch/", BATCH, b"/v1/"),
    ],
)
def test_the_endpoints_prefix(target: bytes, path_class: int, rest: bytes) -> None:
    assert class_in_path(target) == (path_class, rest)
