"""Draining the whole router: running requests may finish, and the others are ended visibly."""

import pytest

from tests.app.members.test_changes import Streams
from tests.harness.behaviours import hang, json_ok
from tests.harness.clocks import NEVER_S
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import running, scenario

PATIENT = {"grace_s": 5.0}


@scenario
async def test_a_drain_lets_streams_finish() -> None:
    gate = Streams()
    async with running(gate, gate, drain=PATIENT) as router:
        streams = [await router.client() for _ in range(5)]
        for client in streams:
            await client.send(chat(stream=True))
            await client.recv_until(b"data:")
        idle = await router.client()
        await eventually(lambda: len(router.app.parts.front.clients) == 6, "six clients")
        assert (await router.admin("/readyz")).status == 200
        assert (await router.admin("/drain", "POST")).status == 202
        found = await router.admin("/readyz")
        assert (found.status, bytes(found.body)) == (503, b"draining\n")
        page = (await router.admin("/fleet")).body.decode()
        assert "\nthis router is not ready: draining\n" in page
        await idle.expect_silence_then_close()
        with pytest.raises(OSError):
            await router.client()
        assert not router.app.draining.done.is_set()
        assert (await router.admin("/livez")).status == 200
        gate.go.set()
        for client in streams:
            whole = await client.recv_response()
            assert whole.complete
            assert whole.events()[-1] == "[DONE]"
            assert await client.expect_close() == "fin"
            client.close()
        idle.close()
        await router.app.draining.done.wait()
        assert router.busy() == {}


@scenario
async def test_a_lame_duck_still_serves() -> None:
    async with running(json_ok, drain={"lame_duck_s": 0.3}) as router:
        kept = await router.client()
        await kept.send(chat())
        assert (await kept.recv_response()).header("connection") is None
        router.app.drain()
        router.app.drain()
        assert not router.app.ready()[0]
        assert (await router.ask()).status == 200
        await kept.send(chat())
        assert (await kept.recv_response()).status == 200
        await kept.expect_silence_then_close()
        kept.close()
        await router.app.draining.done.wait()


@scenario
async def test_a_drain_that_fails_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(json_ok) as router:
        with monkeypatch.context() as defect:
            defect.setattr(router.app.servers, "close_data", None)
            router.app.drain()
            await router.app.draining.done.wait()


@scenario
async def test_a_stop_during_a_drain_is_at_once() -> None:
    drain = {"grace_s": NEVER_S}
    async with running(hang, drain=drain) as router:
        client = await router.client()
        await client.send(chat())
        await router.replicas[0].wait_for_requests(1)
        router.app.drain()
        await eventually(lambda: router.app.parts.front.draining, "the drain")
        await router.app.stop()
        found = await client.recv_response()
        assert (found.status, found.error()["code"]) == (503, "draining")
        client.close()
