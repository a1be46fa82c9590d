"""Estimates the token counts of a request in the proxy if its engine reported none.

The estimate is based on the bytes that were relayed. If the client left before any content, it is
based on the time since the request was sent to the engine.

Must never: decide about an attempt, or write to the client.
"""

from __future__ import annotations

from typing import Final

from policies.facts import RequestView
from router.dispatch.client_request import ClientRequest
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.driver.request import Work
from router.dispatch.reply import Reply
from router.dispatch.usage.token_counts import UNKNOWN, Usage
from router.fleet.prefix.token_ratio import TokenRatio

# Assumed limit of output tokens, if the request sets no limit.
MOST_OUTPUT: Final = 1e6
# The kinds of routes whose answers are generated text.
_WRITES: Final = frozenset({"chat", "completions", "responses", "messages", "generate"})


def usage_before_content(
    attempt: Attempt, prompt_tokens: int, most_output: float, now: float
) -> Usage:
    """Estimate an engine's work for a client that leaves before any content.

    All tokens of the prompt count. The engine may also have generated output that was not sent yet:
    an answer that is not streamed, or the first tokens of a stream. That output is estimated from
    the engine's usual speed, with a maximum of `most_output` tokens.
    """
    replica = attempt.at
    output = 0.0
    pace_s = replica.cadence_s or replica.tpot_s
    if pace_s:
        busy_s = now - attempt.began - replica.progress.first_s
        output = min(max(0.0, busy_s / pace_s), most_output)
    return Usage(prompt_tokens, int(output), None, False)


def usage_at_end(
    work: Work,
    reply: Reply,
    asked: ClientRequest,
    view: RequestView,
    ratio: TokenRatio,
    *,
    is_whole: bool,
) -> Usage:
    """Return the token counts of a request that is over.

    `is_whole`: the response is complete.
    """
    measured, model, account = view.prompt_tokens, view.model, asked.flow.account
    usage = reply.usage(is_whole)
    replica = work.replica
    if usage is UNKNOWN:
        usage = work.usage
        # The answer of an unknown path is counted only if it may be text.
        is_text = asked.route.kind in _WRITES or reply.is_text
        if replica is not None and reply.is_work and is_text:
            output = reply.estimated_output(ratio.of_account(account, model))
            usage = Usage(None, output, None, False)
    elif not usage.exact and replica is not None and reply.is_counted:
        # An event may have several tokens.
        least, token_bytes = replica.learned.cadence.least, ratio.of_account(account, model)
        output = max(usage.output_tokens or 0, reply.estimated_stream(token_bytes, least, is_whole))
        usage = Usage(usage.prompt_tokens, output, usage.cached_tokens, False)
    if usage.prompt_tokens is None and usage is not UNKNOWN and not measured:
        prompt = asked.prompt_tokens(measured)
        if prompt:
            usage = Usage(prompt, usage.output_tokens, None, False)
    return usage


def learn_stream(
    work: Work, reply: Reply, asked: ClientRequest, view: RequestView, ratio: TokenRatio
) -> None:
    """Learn the bytes of a token from a stream whose end was not counted.

    An account whose clients leave all streams would otherwise have no ratio of its own.
    """
    replica = work.replica
    if replica is not None and reply.is_counted:
        size, events = reply.text_so_far()
        tokens = int(events * replica.learned.cadence.least)
        ratio.learn_stream(view.model, asked.flow.account, size, tokens)


def most_generated(asked: ClientRequest) -> float:
    """Return an upper limit of the tokens that any engine generates for the request."""
    most = asked.output_limit
    return MOST_OUTPUT if most < 0 else min(float(most), MOST_OUTPUT)
