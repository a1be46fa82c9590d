"""The rules for every engine's file, on which the rest of the router relies.

One test for each part of the descriptor. Each runs over all files of `router/fleet/engines`, so
that a new engine is checked by all of them. `tests/app/emulator/personas/test_contract.py` has the
parts that need a running engine.
"""

import json
from collections.abc import Iterator

import pytest

from router.config.load import parse
from router.config.model import Health, Replica as ReplicaConfig
from router.core.errors import Reason, RouterError
from router.core.urgency import NORMAL, Urgency
from router.dispatch.attempts.engine_priority import absent, dialect_of, priority_parts, refuses
from router.dispatch.usage.usage_ask import PATHS, asking, replaced
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.base import INVALID, NO_FACTS, Known
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.common.detect import QUESTIONS, detect
from router.fleet.engines.common.priority import EPOCH, SILENT
from router.fleet.engines.common.registry import DIALECTS, ENGINES, UNDETECTED, publishers_of
from router.fleet.replica import Replica
from router.intake.authority import CHOOSERS
from router.intake.body import read_fields
from router.intake.fields import NAMES
from router.intake.routes import JSON, KINDS, POSTS, classify
from router.intake.urgency import number_in
from router.lab.emulator.http.personas import persona_class
from router.lab.emulator.settings import PERSONAS
from router.wire.http1.headers import DROP, REQUEST
from tests.fleet.engines.pages import Page, pages, read
from tests.fleet.helpers import Table

KNOWN = [engine for engine in ENGINES.values() if engine.is_recognised]
every = pytest.mark.parametrize("engine", KNOWN, ids=lambda engine: engine.name)
NOTHING = (None, SILENT, "", False)


def having(part: str) -> pytest.MarkDecorator:
    """The engines whose file defines that part."""
    found = [engine for engine in KNOWN if getattr(engine, part) not in NOTHING]
    assert found, part
    return pytest.mark.parametrize("engine", found, ids=lambda engine: engine.name)


def recorded(engine: Engine) -> Iterator[Page]:
    return (page for page in pages() if page.engine == engine.name)


def replica_of(engine: Engine) -> Replica:
    config = ReplicaConfig(url="http://gpu:1", id="r", engine=engine.name)
    return Replica(config, Health(), None)


def refused(method: bytes, path: bytes) -> bool:
    try:
        classify(method, path, frozenset())
    except RouterError as err:
        return err.reason is Reason.NOT_FOUND
    return False


# -- the file itself -----------------------------------------------------------------------------


def test_one_file_says_what_an_unknown_engine_is_asked() -> None:
    (other,) = [engine for engine in ENGINES.values() if not engine.is_recognised]
    assert (UNDETECTED.sources, UNDETECTED.health) == (other.sources, other.health)


@every
def test_the_configuration_knows_its_name(engine: Engine) -> None:
    text = f"replicas: [{{url: 'http://gpu:1', engine: {engine.name}}}]"
    assert parse(text).replicas[0].engine == engine.name
    assert replica_of(engine).descriptor is engine


@every
def test_there_is_a_persona_of_it(engine: Engine) -> None:
    assert engine.name in PERSONAS
    assert persona_class(engine.name).name == engine.name


@every
def test_its_place_among_the_questions_is_its_own(engine: Engine) -> None:
    assert [other for other in ENGINES.values() if other.marks.order == engine.marks.order] == [
        engine
    ]


# -- detection -----------------------------------------------------------------------------------


@every
def test_no_mark_is_anothers(engine: Engine) -> None:
    marks = engine.marks
    assert marks.metrics or marks.owned_by or marks.answers
    if marks.owned_by is not None:
        assert detect(owned_by=[marks.owned_by]) == engine.name
    for prefix in marks.metrics:
        assert detect(metrics=prefix + b"x 1\n") == engine.name
    for path, is_it in marks.answers.items():
        assert path in (*QUESTIONS, "/metrics")
        assert not any(is_it(other) for other in (INVALID, None, 1, "x", {}))


# -- metrics, health, facts ----------------------------------------------------------------------


@every
def test_each_source_has_a_recording_that_is_parsed(engine: Engine) -> None:
    found = list(recorded(engine))
    assert {id(page.source) for page in found} == {id(source) for source in engine.sources}
    for page in found:
        odd: set[str] = set()
        assert page.source.parse(page.body, page.known, odd) == page.signals
        assert not odd
    for source in engine.sources:
        signals = source.parse(b"<html>", Known())
        assert signals is None or signals == type(signals)()


@having("facts")
def test_its_facts_are_recorded_and_parsed(engine: Engine) -> None:
    assert engine.facts is not None
    name = engine.facts.path.strip("/").replace("_", "-")
    assert engine.facts.parse(read(f"{engine.name}-{name}.json")) != NO_FACTS
    assert engine.facts.parse(b"<html>") == NO_FACTS


@every
def test_its_health_is_decided_by_a_good_and_by_a_bad_status(engine: Engine) -> None:
    for status in (200, 503):
        assert any(check.decides(status) for check in engine.health)


# -- paths and headers ---------------------------------------------------------------------------


@every
def test_what_controls_it_is_closed_to_clients(engine: Engine) -> None:
    assert engine.blocked.control
    below = [path + b"x" for path in engine.blocked.control_below]
    for path in (*engine.blocked.control, *below):
        assert path == path.lower()
        for method in (b"GET", b"POST", b"PUT", b"DELETE"):
            escaped = b"/%%%02x%b" % (path[1], path[2:])
            for spelling in (path, path.upper(), path + b"?x=1", escaped):
                assert refused(method, spelling), (method, spelling)


@every
def test_what_the_router_reads_its_load_from_is_closed_to_clients(engine: Engine) -> None:
    paths = [source.path for source in engine.sources]
    paths += [publisher.path for publisher in publishers_of(engine)]
    if engine.abort is not None:
        paths.append(engine.abort.path)
    for path in paths:
        assert refused(b"GET", path.encode()), path
        assert refused(b"POST", path.encode()), path


@every
def test_a_header_that_it_obeys_never_passes(engine: Engine) -> None:
    for header in engine.blocked.private_headers:
        assert header == header.lower()
        assert REQUEST.sort(header + b": 1")[0] == DROP
        assert REQUEST.sort(header.title() + b": 1")[0] == DROP


@every
def test_a_member_that_chooses_where_it_reads_or_writes_is_refused(engine: Engine) -> None:
    route = POSTS[b"/v1/chat/completions"]
    for member in engine.blocked.private_members:
        for body in ({member: 0}, *[{nest: {member: 0}} for nest in engine.blocked.member_nests]):
            raw = json.dumps(body).encode()
            with pytest.raises(RouterError) as refused:
                read_fields(route, [raw], len(raw), None, None)
            assert refused.value.reason is Reason.PRIVATE_MEMBER


@every
def test_its_own_paths_are_routed_as_it_says(engine: Engine) -> None:
    for own in engine.native:
        route, _ = classify(b"POST", own.path, frozenset())
        assert route.inference and route.is_known and route.body == JSON
        said = (own.kind, own.streams_events, own.light)
        assert (route.kind, route.streams_events, route.light) == said
        assert route.kind in KINDS
    assert engine.counts_natively <= POSTS.keys()


# -- models --------------------------------------------------------------------------------------


@every
def test_a_name_that_it_does_not_list_is_refused_or_forwarded(engine: Engine, table: Table) -> None:
    table.add("r", ("m",), engine=engine.name)
    aliases = table.fleet.models.aliases
    assert aliases.of("x") == ("x" if engine.refuses_models else "m")
    table.add("s", ("other",), engine=engine.name)
    assert aliases.of("m:a") == ("m" if engine.names_adapters else "m:a")


@having("adapters")
def test_what_chooses_its_adapters_is_judged(engine: Engine) -> None:
    rules = engine.adapters
    assert rules is not None
    assert {*rules.by_path.values(), rules.unknown, rules.by_plain_name} <= CHOOSERS


# -- priorities ----------------------------------------------------------------------------------


@every
def test_an_engine_without_priorities_is_told_none(engine: Engine) -> None:
    replica = replica_of(engine)
    dialect = dialect_of(replica)
    assert dialect is engine.dialect
    if dialect is SILENT:
        told = priority_parts(
            dialect, False, b"/v1/chat/completions", Urgency(0.0, "x"), EPOCH, 300.0, True
        )
        assert (told.member, told.header, told.drops) == (b"", b"", True)
        assert absent(replica) == b'"priority":null'


@having("dialect")
def test_its_numbers_say_which_request_is_more_urgent(engine: Engine) -> None:
    for dialect in (engine.dialect, engine.low_first):
        if dialect is None:
            continue
        assert DIALECTS[dialect.name] is dialect
        for arrived in (EPOCH + 100.0, EPOCH + 2e7):
            for is_bounded in (False, True):
                words = [dialect.write(n / 2, arrived, 300.0, is_bounded) for n in range(9)]
                assert len(set(words[::2])) == 5, "a class has a number of its own"
                read_back = [dialect.read(json.loads(word)) for word in words]
                assert read_back == sorted(read_back)


@having("dialect")
def test_its_default_number_is_normal(engine: Engine) -> None:
    for dialect in (engine.dialect, engine.low_first):
        if dialect is not None:
            value = json.loads(b"{%b}" % dialect.absent)["priority"]
            assert number_in(dialect.name, 0.0 if value is None else value) == NORMAL


@having("dialect")
def test_it_is_told_where_it_reads_the_field(engine: Engine) -> None:
    dialect = engine.dialect
    assert b"/v1/chat/completions" in dialect.paths
    assert all(POSTS[path].is_edited for path in dialect.paths | dialect.header_paths)
    assert bool(dialect.header) == bool(dialect.header_paths)
    assert not dialect.header or dialect.header in engine.blocked.private_headers
    assert bool(dialect.refusal) == bool(dialect.refusals)
    told = priority_parts(
        dialect, False, b"/v1/chat/completions", Urgency(1.0, "x"), EPOCH, 300.0, False
    )
    assert json.loads(b"{%b}" % told.member).keys() == {"priority"}
    assert told.refusal == dialect.refusal


def test_no_engine_is_believed_to_refuse_what_it_does_not_name() -> None:
    assert not refuses(b'{"error":"too many requests","priority":1}')


# -- requests under way --------------------------------------------------------------------------


@having("abort")
def test_a_request_of_it_gets_a_name_that_the_router_reads(engine: Engine) -> None:
    abort = engine.abort
    assert abort is not None
    key = abort.key.decode()
    assert key in NAMES, "a client's own name must never pass"
    assert json.loads(b"{%b}" % abort.member(b"n-01")) == {key: "n-01"}
    assert json.loads(b"{%b}" % abort.nameless) == {key: None}
    assert all(POSTS[path].inference for path in abort.paths)


@having("usage_ask")
def test_it_is_asked_for_one_event_of_counts(engine: Engine) -> None:
    ask = engine.usage_ask
    assert ask is not None
    options = json.loads(ask.options)
    assert options["include_usage"] is True
    assert not options.get("continuous_usage_stats", False)
    assert json.loads(b"{%b}" % ask.member) == {"stream_options": options}
    body = b'{"stream":true,"stream_options":null}'
    found = asking(b"null", ask)
    assert found == (ask.options, True)
    (changed,) = replaced([body], b"null", found[0]) or [b""]
    assert json.loads(changed)["stream_options"] == options
    assert all(POSTS[path].streams_events for path in PATHS)


@every
def test_an_event_that_tells_counts_has_its_mark(engine: Engine) -> None:
    usage = b'"usage":{"prompt_tokens":3,"completion_tokens":1}'
    timings = b'"timings":{"cache_n":1,"prompt_n":2,"predicted_n":1}'
    told = usage if engine.counts_mark in usage else timings
    assert engine.counts_mark in told
    assert engine.counts_mark not in b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}'
    tap = UsageTap(mark=engine.counts_mark)
    tap.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
    tap.feed(b'data: {"choices":[],%b}\n\n' % told)
    tap.feed(b"data: [DONE]\n\n")
    found = tap.result(True)
    assert (found.prompt_tokens, found.output_tokens) == (3, 1)


# -- KV events and token IDs ---------------------------------------------------------------------


@having("publisher")
def test_an_answer_without_publishers_has_no_source(engine: Engine) -> None:
    publisher = engine.publisher
    assert publisher is not None
    for answer in (b"", b"<html>", b"[]", b"{}", b'{"0":1}', b'{"kv_events":[]}'):
        assert publisher.read(answer, "gpu") == []


@having("tokenize")
def test_token_ids_come_from_a_path_that_runs_no_model(engine: Engine) -> None:
    assert POSTS[engine.tokenize.encode()].light
