"""vLLM reports its KV usage in a response header on request: it is used, and passed on."""

import pytest

from tests.harness.messages import COMPLETION, chat, json_response
from tests.harness.replica import ReplicaConnection
from tests.harness.running import running, scenario


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        (
            'JSON {"named_metrics": {"num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.75}}',
            0.75,
        ),
        ("TEXT named_metrics.kv_cache_usage_perc=0.5, named_metrics.num_requests_waiting=2", 0.5),
        ("JSON {", None),
        ("TEXT named_metrics.kv_cache_usage_perc=nan", None),
        ("TEXT named_metrics.kv_cache_usage_perc=-1", None),
    ],
)
@scenario
async def test_it_is_taken_when_it_comes_by(value: str, usage: float | None) -> None:
    async def tells(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            field = f"endpoint-load-metrics: {value}"
            await connection.send(json_response(COMPLETION, 200, field))

    async with running(tells, quiet_control_plane="polls tell it, too") as router:
        answer = await router.ask(chat())
        assert answer.status == 200
        assert answer.header("endpoint-load-metrics") == value
        (shown,) = router.app.replicas()
        assert shown["kv_usage"] == usage
