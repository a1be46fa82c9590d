"""Batch and chat of one key: batch gets the remaining capacity, and never causes a chat refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.core.errors import Reason
from tests.faults.queue.test_queue_tenants import bearer, keys_of
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.queueing import ONE, Turnstile, queue, waiting
from tests.harness.replica import eventually
from tests.harness.running import assert_error, running, virtual_scenario

ACME = bearer("acme")


def ask(cls: str) -> bytes:
    return chat(ACME, f"x-priority: {cls}", tag=cls)


LIMITS: list[tuple[dict[str, Any], Reason]] = [
    ({"concurrency": 2}, Reason.KEY_CONCURRENCY),
    ({"requests_per_minute": 2}, Reason.KEY_REQUESTS),
    ({"tokens_per_minute": 50}, Reason.KEY_TOKENS),
]


@pytest.mark.parametrize(("limits", "reason"), LIMITS)
@virtual_scenario
async def test_queued_batch_requests_refuse_no_chat(
    tmp_path: Path, limits: dict[str, Any], reason: Reason
) -> None:
    """The waiting batch requests use the key's whole limit; a chat is queued before them."""
    turnstile = Turnstile()
    keys = keys_of(tmp_path, "acme", acme=limits)
    async with running(turnstile, replica=ONE, queue=queue(), keys=keys) as router:
        first = await router.send(chat(tag="other"))
        await eventually(lambda: len(turnstile.tags) == 1, "another's is being served")
        batch = [await router.client() for _ in range(2)]
        for n, client in enumerate(batch, 1):
            await client.send(ask("batch"))
            await eventually(lambda n=n: waiting(router) == n, "it waits")  # type: ignore[misc]
        assert_error(await router.ask(ask("batch"), "POST"), reason, 429)
        talk = await router.send(ask("normal"))
        await eventually(lambda: waiting(router) == 3, "the chat waits")
        turnstile.open(4)
        for client in (first, talk, *batch):
            assert (await client.recv_response()).status == 200
        assert turnstile.tags == ["other", "normal", "batch", "batch"]


@virtual_scenario
async def test_batch_gets_what_the_chat_leaves(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "acme", acme={"requests_per_minute": 3})
    async with running(json_ok, queue=queue(), keys=keys) as router:
        for cls in ("normal", "normal", "batch"):
            assert (await router.ask(ask(cls), "POST")).status == 200
        refused = await router.ask(ask("batch"), "POST")
        assert_error(refused, Reason.KEY_REQUESTS, 429)
        assert int(refused.header("retry-after") or 0) >= 1
        assert (await router.ask(ask("normal"), "POST")).status == 200
        assert_error(await router.ask(ask("normal"), "POST"), Reason.KEY_REQUESTS, 429)
