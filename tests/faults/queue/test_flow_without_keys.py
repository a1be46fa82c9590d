"""Without a keys file: many requests of one client must not delay the request of another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router.config.model import Queue
from tests.app.pages import page
from tests.harness.crowd import Crowd, reaches
from tests.harness.messages import chat, completion, json_response
from tests.harness.queueing import ONE, Turnstile, waiting
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, virtual_scenario

MANY = 300
PROXY = ("127.0.0.0/8",)  # trusted: X-Forwarded-For is the client


def of(bearer: str, address: str = "192.0.2.1") -> list[str]:
    return [f"Authorization: Bearer {bearer}", f"X-Forwarded-For: {address}"]


async def single_goes_next(
    router: Router, turnstile: Turnstile, many: Callable[[int], list[str]], single: list[str]
) -> None:
    """Many requests wait, then a single one arrives: it is served after at most two of them."""
    crowd = Crowd(router.port)
    await crowd.connect(MANY + 2)
    crowd.send([0], lambda n: chat(*many(n), tag="many"))
    await eventually(lambda: len(turnstile.tags) == 1, "the first is being served")
    crowd.send(range(1, MANY + 1), lambda n: chat(*many(n), tag="many"))
    await reaches(lambda: waiting(router), MANY, "wait")
    crowd.send([MANY + 1], lambda _: chat(*single, tag="single"))
    await reaches(lambda: waiting(router), MANY + 1, "wait")
    turnstile.open(3)
    await crowd.all_answered(3)
    assert "single" in turnstile.tags[:3], turnstile.tags.index("single")
    turnstile.open(MANY)
    await crowd.all_answered(MANY + 2)
    assert set(crowd.statuses.values()) == {200}
    await crowd.close()


@pytest.mark.parametrize("where", ["same address", "other address"])
@virtual_scenario
async def test_three_hundred_requests_of_one_bearer(where: str) -> None:
    turnstile = Turnstile()
    single = of("single", "192.0.2.1" if where == "same address" else "192.0.2.2")
    rules = Queue()
    async with running(turnstile, replica=ONE, queue=rules, trusted_proxies=PROXY) as router:
        await single_goes_next(router, turnstile, lambda n: of("greedy"), single)


@virtual_scenario
async def test_three_hundred_bearers_of_one_address_have_one_share() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=Queue(), trusted_proxies=PROXY) as router:
        single = ["X-Forwarded-For: 192.0.2.2"]
        await single_goes_next(router, turnstile, lambda n: of(f"invented-{n}"), single)


@virtual_scenario
async def test_three_hundred_addresses_that_a_client_writes_itself_are_one() -> None:
    """X-Forwarded-For entries to the left of the trusted proxy's are invented by the client."""
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=Queue(), trusted_proxies=PROXY) as router:

        def many(n: int) -> list[str]:
            return [f"X-Forwarded-For: 198.51.{n // 256}.{n % 256}, 192.0.2.1"]

        await single_goes_next(router, turnstile, many, ["X-Forwarded-For: 192.0.2.2"])


class Checking:
    """An engine that accepts only the bearer token `good`."""

    def __init__(self, *, checks: bool = True) -> None:
        self.checks = checks

    async def __call__(self, connection: ReplicaConnection) -> None:
        while asked := await connection.recv_request():
            sent = asked.header("authorization") or ""
            if self.checks and not sent.endswith(" good"):
                await connection.send(json_response({"error": {"message": "no"}}, 401))
            else:
                await connection.send(completion())


@pytest.mark.parametrize("checks", [True, False])
@virtual_scenario
async def test_a_success_confirms_only_where_keys_are_checked(checks: bool) -> None:
    """Before a success, a credential counts within its client's address; afterwards it counts on
    its own, from every address.
    """
    async with running(Checking(checks=checks), trusted_proxies=PROXY) as router:
        for bearer in ("bad", "good", "good"):
            answer = await router.ask(chat(*of(bearer)), "POST")
            assert answer.status == (401 if checks and bearer == "bad" else 200)
        await router.ask(chat(*of("good", "192.0.2.9")), "POST")
        lines = await router.log(4)
        assert len({line["tenant"] for line in lines[1:]}) == 1
        assert lines[0]["tenant"] != lines[1]["tenant"]
        assert lines[0]["within"] == lines[1]["within"] != ""
        is_confirmed = ["within" not in line for line in lines[2:]]
        assert is_confirmed == [checks, checks]


@virtual_scenario
async def test_an_engine_that_serves_without_a_credential_confirms_none() -> None:
    """The engine was restarted without its key: from then on it accepts any credential."""
    engine = Checking()
    async with running(engine, trusted_proxies=PROXY) as router:
        assert (await router.ask(chat(*of("bad")), "POST")).status == 401
        engine.checks = False
        assert (await router.ask(chat(), "POST")).status == 200
        for _ in range(2):
            assert (await router.ask(chat(*of("invented")), "POST")).status == 200
        assert all(line.get("within") for line in await router.log(4))


@virtual_scenario
async def test_waiting_requests_are_listed_by_the_names_in_the_log() -> None:
    turnstile = Turnstile()
    async with running(turnstile, replica=ONE, queue=Queue(), trusted_proxies=PROXY) as router:
        crowd = Crowd(router.port)
        await crowd.connect(4)
        crowd.send([0], lambda n: chat(*of("one")))
        await eventually(lambda: len(turnstile.tags) == 1, "the first is being served")
        crowd.send([1, 2], lambda n: chat(*of("one")))
        crowd.send([3], lambda n: chat(*of("two", "192.0.2.2")))
        await reaches(lambda: waiting(router), 3, "wait")
        told = (await page(router, "/queue"))["tenants"]
        turnstile.open(4)
        await crowd.all_answered(4)
        logged = {(line["within"], line["tenant"]) for line in await router.log(4)}
        assert {(entry["key"], entry["user"]) for entry in told} == logged
        assert [entry["waiting"] for entry in told] == [2, 1]
        assert "one" not in str(told) and "192.0.2" not in str(told)
        await crowd.close()
