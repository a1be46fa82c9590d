"""A log without keys: a replay gives each request the flow that it had in the proxy.

The proxy's clients have no key, so each has the share of its address, whatever credentials it
invents. The access log records this address (`within`). In the replay, another client then does not
wait behind the flood of one client.
"""

import pytest

from router.config.model import Queue, QueueGates
from router.lab.simulator.arrival import Arrival
from router.lab.simulator.simulation import simulate
from router.lab.traces import Trace
from tests.harness.behaviours import json_ok
from tests.harness.messages import chat
from tests.harness.running import running, scenario
from tests.lab.simulator.worlds import Kept, Script, world

FLOOD, OTHER = "192.0.2.1", "192.0.2.2"
MANY = 30
FAIR = Queue(policy="fair", gates=QueueGates(waiting=1, prefill_tokens=0))


def wait_s(flows: list[tuple[str, str]]) -> float:
    """The seconds for which the last of these requests waits if all arrive at nearly one time.

    `flows`: the `within` and the `tenant` of each request.
    """
    arrivals = [
        Arrival(number, 0.001 * number, 400, 10, within=within, tenant=tenant)
        for number, (within, tenant) in enumerate(flows)
    ]
    kept = Kept()
    simulate(world(queue=FAIR), Script(arrivals), kept)
    return kept[len(arrivals) - 1].queued_s


@pytest.mark.parametrize("invents", [False, True], ids=["no credentials", "invented credentials"])
@scenario
async def test_the_other_client_does_not_wait_behind_the_flood(invents: bool) -> None:
    async with running(json_ok, trusted_proxies=("127.0.0.0/8",)) as router:
        for number in range(MANY + 1):
            client = OTHER if number == MANY else FLOOD
            fields = [f"authorization: Bearer invented-{number}"] if invents else []
            await router.ask(chat(f"x-forwarded-for: {client}", *fields))
        await router.log(MANY + 1)
        read = list(Trace(router.log_path, block_tokens=16))
    assert not any(one.is_known for one in read)
    assert [one.within for one in read] == [read[0].within] * MANY + [read[-1].within]
    assert read[0].within != read[-1].within
    assert len({one.tenant for one in read}) == (MANY + 1 if invents else 1)
    assert 3 * wait_s([(one.within, one.tenant) for one in read]) < wait_s([("", "")] * len(read))
