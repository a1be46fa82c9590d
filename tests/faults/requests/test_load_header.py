"""vLLM reports its KV usage in a response header on request: it is used, and passed on."""

import pytest

from tests.harness.behaviours import answer
from tests.harness.messages import chat, completion
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
    tells = answer(completion(f"endpoint-load-metrics: {value}"))
    async with running(tells, quiet_control_plane="polls tell it, too") as router:
        found = await router.ask(chat())
        assert found.status == 200
        assert found.header("endpoint-load-metrics") == value
        (shown,) = router.app.replicas()
        assert shown["kv_usage"] == usage
