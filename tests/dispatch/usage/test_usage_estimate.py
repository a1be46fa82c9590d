"""Token counts that no engine reported: from what was relayed, or from the time that it took."""

import asyncio
from typing import Any

import pytest

from policies.facts import RequestView
from router.config.model import Limits, Timeouts
from router.core.errors import RouterError
from router.dispatch.client_request import ClientRequest
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.request import Work
from router.dispatch.reply import Reply
from router.dispatch.usage.token_counts import UNKNOWN, BodyEnd, Usage
from router.dispatch.usage.usage_estimate import (
    most_generated,
    usage_at_end,
    usage_before_content,
)
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.prefix.token_ratio import TokenRatio
from router.intake.body import SCAN_ABOVE
from router.intake.flow import Flow
from router.intake.routes import ANY, JSON, Route, classify
from router.wire.client import ClientConnection, Front, Handler
from router.wire.http1.heads import RequestHead
from router.wire.outbox import Outbox
from router.wire.sweep import Sweeper
from tests.dispatch.replicas import bare
from tests.intake.members import made

MEASURED = 100  # measured tokens of the prompt


def asked(
    kind: str = "chat",
    body: str = JSON,
    size: int = 1_000,
    path: bytes = b"/v1/chat/completions",
    route: Route | None = None,
    **fields: Any,
) -> ClientRequest:
    return ClientRequest(
        RequestHead(),
        size,
        Route(kind, True, body, True) if route is None else route,
        path,
        made(**fields),
        b"name",
        None,
        Flow("", "10.0.0.1", ""),
        None,
        None,
        None,
    )


# -- before content ---------------------------------------------------------------------------


def attempt(cadence_s: float | None = None, tpot_s: float | None = None) -> Attempt:
    """Dispatched at 10.0 to an engine whose first content comes after half a second."""
    replica = bare("r")
    replica.cadence_s, replica.tpot_s = cadence_s, tpot_s
    replica.progress.first_s = 0.5
    return Attempt(0, "primary", replica, 10.0, MEASURED)


@pytest.mark.parametrize(
    ("cadence_s", "tpot_s", "now", "output"),
    [
        (None, None, 99.0, 0),  # the engine's speed is not known
        (0.1, None, 10.0, 0),
        (0.1, None, 10.5, 0),  # the engine has just read the prompt
        (0.125, None, 11.5, 8),
        (None, 0.25, 11.5, 4),
        (0.125, 0.25, 11.5, 8),  # the current speed counts, not that of finished streams
        (0.0, 0.25, 11.5, 4),
        (0.125, None, 9.0, 0),  # the estimate is never below 0
    ],
)
def test_output_that_the_client_did_not_see(
    cadence_s: float | None, tpot_s: float | None, now: float, output: int
) -> None:
    found = usage_before_content(attempt(cadence_s, tpot_s), MEASURED, 1e6, now)
    assert found == Usage(MEASURED, output, None, False)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 1_000_000),
        ({"max_tokens": 16}, 16),
        ({"max_completion_tokens": 16, "max_tokens": 32}, 32),  # an engine may read either
        ({"max_output_tokens": 8, "max_tokens": 32}, 32),  # on this route no engine reads the first
        ({"max_tokens": 0}, 1_000_000),
        ({"max_tokens": -5}, 1_000_000),
        ({"max_tokens": 10**30}, 1_000_000),
        ({"max_tokens": 1 << 30}, 1_000_000),
    ],
)
def test_the_clients_limit_bounds_the_output(fields: dict[str, Any], most: int) -> None:
    assert most_generated(asked(**fields)) == most
    found = usage_before_content(attempt(1e-6), MEASURED, most, 99.0)
    assert found.output_tokens == most


def test_a_native_path_has_other_limits_than_these_members() -> None:
    for path in (b"/generate", b"/api/chat", b"/tomorrow/s/endpoint"):
        request = asked(path=path, route=classify(b"POST", path, frozenset())[0], max_tokens=16)
        assert most_generated(request) == 1_000_000
        assert request.most_output_of_all() is None


def test_the_limit_of_all_choices() -> None:
    assert asked(max_completion_tokens=1, max_tokens=16, n=3).most_output_of_all() == 48
    assert asked(n=3).most_output_of_all() is None


def test_a_prompt_that_was_not_measured_is_estimated_from_the_body() -> None:
    assert asked(size=4_000).prompt_tokens(0) == 1_000
    assert asked(size=4_000, body=ANY).prompt_tokens(0) == 0


# -- at the end -------------------------------------------------------------------------------


class NoHandler(Handler):
    """A handler that gets no request."""

    def check_head(self, head: RequestHead) -> None:
        raise NotImplementedError

    def start(
        self, client: ClientConnection, head: RequestHead, body: list[bytes], size: int
    ) -> None:
        raise NotImplementedError

    def hand_over(self, client: ClientConnection, head: RequestHead, early: bytes) -> None:
        raise NotImplementedError

    def relieve(self, peer: str, head: RequestHead, body_bytes: int) -> bool:
        raise NotImplementedError

    def refused(self, client: ClientConnection, head: RequestHead | None, err: RouterError) -> str:
        raise NotImplementedError

    def log_defect(self, err: Exception) -> None:
        raise NotImplementedError


def a_client() -> ClientConnection:
    """A connection that was never made."""
    loop = asyncio.new_event_loop()
    sweeper = Sweeper(loop, lambda _: None)
    loop.close()
    return ClientConnection(
        Front(
            NoHandler(),
            sweeper,
            Limits(),
            Timeouts(),
            via=b"hedgerow",
            outbox=Outbox(loop),
            max_clients=1,
            allow_half_close=False,
        )
    )


def a_reply(bytes_out: int = 0, *, is_work: bool = True) -> Reply:
    """A reply to a client that is never written to."""
    reply = Reply(
        a_client(),
        b"rid",
        target=b"/v1/chat/completions",
        head=RequestHead(),
    )
    reply.bytes_out = bytes_out
    reply.is_work = is_work
    return reply


def work(usage: Usage = UNKNOWN, *, has_answered: bool = True) -> Work:
    made = Work()
    made.usage = usage
    if has_answered:
        made.replica = bare("r")
    return made


def end(
    reply: Reply,
    request: ClientRequest | None = None,
    done: Work | None = None,
    *,
    is_whole: bool = True,
) -> Usage:
    return usage_at_end(
        work() if done is None else done,
        reply,
        asked() if request is None else request,
        RequestView(prompt_tokens=MEASURED),
        TokenRatio(),
        is_whole=is_whole,
    )


def test_counts_of_the_engine_are_not_estimated() -> None:
    tap = UsageTap()
    tap.feed(b'data: {"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n')
    tap.feed(b"data: [DONE]\n\n")
    reply = a_reply(10_000)
    reply.watch(tap, 0.0, 1.0)
    assert end(reply) == Usage(3, 4, None, True)


def test_an_answer_without_counts_has_a_token_for_four_bytes() -> None:
    assert end(a_reply(256 + 400)) == Usage(None, 100, None, False)
    assert end(a_reply(10)) == Usage(None, 0, None, False)


def test_lines_of_json_have_a_token_each_or_more() -> None:
    for bytes_out, tokens in ((500, 5), (4_000, 10)):
        reply = a_reply(bytes_out)
        reply._end = BodyEnd()
        reply._end.feed(b"{}\n" * 5)
        assert end(reply) == Usage(None, tokens, None, False)


@pytest.mark.parametrize(
    ("kind", "is_text", "tokens"),
    [
        ("chat", False, 100),
        ("generate", False, 100),
        ("embeddings", False, None),  # embeddings are not generated token by token
        ("other", False, None),
        ("other", True, 100),
    ],
)
def test_only_generated_text_counts_as_output(kind: str, is_text: bool, tokens: int | None) -> None:
    reply = a_reply(256 + 400)
    reply.is_text = is_text
    assert end(reply, asked(kind)).output_tokens == tokens


def test_the_estimate_of_a_client_that_left_early_is_kept() -> None:
    early = Usage(MEASURED, 7, None, False)
    reply = a_reply(0, is_work=False)
    assert end(reply, done=work(early), is_whole=False) == early
    # No engine has answered, so what was sent to the client was the router's own.
    assert end(a_reply(5_000), done=work(early, has_answered=False)) == early


def test_an_error_that_was_relayed_is_no_work() -> None:
    assert end(a_reply(5_000, is_work=False)) is UNKNOWN


@pytest.mark.parametrize("size", [1_000, SCAN_ABOVE + 1])
def test_a_prompt_that_was_not_measured_counts_at_the_end(size: int) -> None:
    def ended(request: ClientRequest, measured: int, *, is_work: bool = True) -> Usage:
        reply = a_reply(656, is_work=is_work)
        view = RequestView(prompt_tokens=measured)
        return usage_at_end(work(), reply, request, view, TokenRatio(), is_whole=True)

    assert ended(asked(size=size), 0) == Usage(size // 4, 100, None, False)
    assert ended(asked(size=size), MEASURED) == Usage(None, 100, None, False)
    assert ended(asked(size=size, body=ANY), 0) == Usage(None, 100, None, False)
    assert ended(asked(size=size), 0, is_work=False) is UNKNOWN  # no engine has read the prompt
