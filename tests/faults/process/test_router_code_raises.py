"""The router's code, or a policy, raises: the request ends with an error, and is counted.

No client waits for an answer that will not come, no engine works for a failed request, and nothing
stays held. Later requests are served.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from policies.hedging.contract import HEDGING, Delay, HedgingPolicy
from policies.hedging.curve import Curve
from router.config.model import Hedging, Queue
from router.core.build import is_compiled
from router.core.errors import Reason
from router.dispatch.driver import placing, watch
from router.dispatch.exchange import Exchange
from router.dispatch.hedging.hedger import Hedger
from router.dispatch.queueing.queue_driver import QueueDriver
from router.dispatch.reply import Reply
from router.fleet.prefix.lookup import PrefixLookup
from router.observe.metrics import Metrics
from tests.harness import kit
from tests.harness.behaviours import answer

# A compiled class does not allow a method to be replaced, and its callers would not use it.
replaces_a_method = pytest.mark.skipif(is_compiled(), reason="compiled methods cannot be replaced")


class Broken(Random):
    """A random generator that fails at every draw."""

    def random(self) -> float:
        raise RuntimeError("no chance")


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a defect")


busy = answer(kit.response(503, body=b"{}"))


async def silent(connection: kit.ReplicaConnection) -> None:
    while await connection.recv_request():
        await connection.expect_close()


async def ended_as_internal(router: kit.Router, asked: bytes) -> None:
    """Send a request for which the router's code raises: it must end as an internal error."""
    kit.assert_error(await router.ask(asked), Reason.INTERNAL)
    assert await router.reason() == "internal"
    await router.quiet()


@pytest.mark.parametrize("queued", [True, False])
@kit.scenario
async def test_while_a_replicas_answer_is_read(
    queued: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with kit.running(busy, busy, queue=Queue(enabled=queued)) as router:
        router.app.parts.context._rng = Broken()  # it draws the pause before a retry
        await ended_as_internal(router, kit.chat())
    (told,) = [r for r in caplog.records if "inside the router" in r.getMessage()]
    fields = vars(told)["fields"]
    assert fields["error"] == "RuntimeError('no chance')"
    assert fields["where"].rpartition(":")[0] == __file__


@kit.routed(kit.fin_after_request, kit.fin_after_request)
async def test_while_a_replica_dies(router: kit.Router) -> None:
    router.app.parts.context._rng = Broken()
    await ended_as_internal(router, kit.chat())


@replaces_a_method
@kit.routed(silent, timeouts={"whole_s": 0.2})
async def test_at_a_deadline(router: kit.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_check_attempts", fails)
    await ended_as_internal(router, kit.chat())


@dataclass(slots=True)
class Utilised(HedgingPolicy):
    """A third-party policy that fails when the hedger asks for a copy."""

    delay_s: float = 0.0

    def delay(self, curve: Curve, quantile: float) -> Delay | None:
        return Delay(seconds=self.delay_s)

    def most_utilised(self) -> float:
        raise RuntimeError("a defect")


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
@kit.scenario
async def test_a_hedging_policy_fails_when_a_copy_is_due(
    delay_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy is sent, and the request is answered: the contract promises this."""
    HEDGING.names()
    monkeypatch.setattr(HEDGING, "classes", {**HEDGING.classes, "fragile": Utilised})
    hedging = Hedging(policy="fragile", options={"delay_s": delay_s}, budget=1.0)

    async def slow(connection: kit.ReplicaConnection) -> None:
        while await connection.recv_request():
            await kit.eventually(
                lambda: router.app.parts.context.hedger.metrics.policy_errors > 0, "an error"
            )
            await connection.send(kit.response(200, body=b'{"choices":[{}]}'))

    async with kit.running(slow, slow, hedging=hedging) as router:
        answer = await router.ask(kit.chat("X-Priority: high"))
        assert answer.status == 200


@replaces_a_method
@kit.routed(kit.json_ok)
async def test_the_hedger_fails_at_a_dispatch(
    router: kit.Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hedging copy is optional: without a copy, the request continues."""
    monkeypatch.setattr(Hedger, "dispatched", fails)
    assert (await router.ask(kit.chat())).status == 200


@replaces_a_method
@kit.routed(kit.json_ok)
async def test_when_the_first_content_comes(
    router: kit.Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica has won and nothing was sent to the client: an error can still be sent."""
    monkeypatch.setattr(Hedger, "shown", fails)
    await ended_as_internal(router, kit.chat())
    monkeypatch.undo()
    assert (await router.ask(kit.chat())).status == 200


@replaces_a_method
@kit.scenario
async def test_in_the_middle_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client can see that the rest of the stream is missing."""

    async def streams(connection: kit.ReplicaConnection) -> None:
        await connection.recv_request()
        await connection.send(kit.SSE_HEAD, kit.chunk(kit.token("a")))
        await kit.eventually(lambda: exchange().reply.bytes_out > 0, "the first token")
        monkeypatch.setattr(Reply, "relay", fails)
        await connection.send(kit.chunk(kit.token("b")))
        await connection.expect_close()

    def exchange() -> Exchange:
        (found,) = router.app.parts.dispatcher.exchanges
        return found

    async with kit.running(streams) as router:
        kit.assert_cut_stream(await router.ask(kit.chat(stream=True)), Reason.INTERNAL)
        assert await router.reason() == "internal"


@replaces_a_method
@kit.routed(kit.json_ok)
async def test_before_the_request_is_known(
    router: kit.Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is counted like any other request, although only its head is known."""
    with monkeypatch.context() as patch:
        patch.setattr("router.dispatch.dispatcher.read_fields", fails)
        await ended_as_internal(router, kit.chat())
    assert (await router.ask(kit.chat())).status == 200


@replaces_a_method
@kit.routed(kit.json_ok)
async def test_while_it_is_placed(router: kit.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefixLookup, "measure", fails)
    monkeypatch.setattr(QueueDriver, "_fast_path", fails)
    await ended_as_internal(router, kit.chat())


@replaces_a_method
@kit.routed(silent)
async def test_when_its_client_leaves(router: kit.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine continues, and the connection and its bytes are released."""
    monkeypatch.setattr("router.dispatch.exchange.usage_before_content", fails)
    client = await router.send(kit.chat())
    await kit.eventually(lambda: router.replica.requests, "the request")
    client.close()
    await router.quiet()
    assert await router.reason() == "client_gone"


@replaces_a_method
@pytest.mark.parametrize("what", ["finished", "attempt"])
@kit.routed(kit.json_ok)
async def test_while_its_end_is_counted(
    router: kit.Router, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has its answer, and may send another request over the same connection."""
    client = await router.client()
    with monkeypatch.context() as patch:
        patch.setattr(Metrics, what, fails)
        await client.send(kit.chat())
        assert (await client.recv_response()).status == 200
    await client.send(kit.chat())
    assert (await client.recv_response()).status == 200


@replaces_a_method
@kit.routed(silent, drain={"grace_s": 0.1})
async def test_at_the_end_of_a_drain(router: kit.Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the remaining requests is ended, even if another one fails."""
    for _ in range(3):
        await router.send(kit.chat())
    await router.replica.wait_for_requests(3)
    monkeypatch.setattr(placing, "replaces_error", fails)
    await router.app.stop()
    lines = await router.log(3)
    assert {line["reason"] for line in lines} == {"internal"}
