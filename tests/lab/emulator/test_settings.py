"""Allowed combinations of options, and the configuration of each persona's core."""

import pytest

from router.lab.emulator.settings import EngineSettings


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"persona": "other"}, "unknown persona"),
        ({"models": ()}, "at least one model"),
        ({"profile": "turbo"}, "unknown profile"),
        ({"speed": 0.0}, "speed"),
        ({"keep_alive_s": 0.0}, "keep-alive"),
        ({"stream_interval": 0}, "at least one token"),
        ({"scheduling_policy": "lifo"}, "fcfs or priority"),
        ({"kv_events": True, "prefix_caching": False}, "prefix caching"),
        ({"kv_events": True, "persona": "tgi"}, "publishes no KV events"),
        ({"kv_events_topic": "{nobody}"}, "topic"),
        ({"adapters": ("a",), "persona": "tgi"}, "no adapters"),
        ({"max_loras": 0}, "one adapter"),
        ({"lora_load_s": -1.0}, "0 or more seconds"),
        ({"data_parallel_size": 0}, "one data-parallel rank"),
        ({"data_parallel_size": 2, "persona": "tgi"}, "no data-parallel ranks"),
        ({"num_blocks": 1}, "cannot hold one request"),
    ],
)
def test_settings_that_do_not_fit_are_reported(chosen: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        EngineSettings(**chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("persona", ["vllm", "sglang", "trtllm", "tgi", "llamacpp"])
def test_which_personas_preempt_reserve_and_displace(persona: str) -> None:
    core = EngineSettings(persona=persona).core_config()
    assert core.reserve_output == (persona in ("trtllm", "tgi", "llamacpp"))
    assert core.preempt_advantage == (10 if persona == "sglang" else None)
    assert core.priority_scheduling == (persona in ("vllm", "sglang", "trtllm"))
    assert not core.kv_events


def test_first_come_first_served_displaces_no_request() -> None:
    core = EngineSettings(persona="sglang", scheduling_policy="fcfs").core_config()
    assert (core.priority_scheduling, core.preempt_advantage) == (False, None)
