"""GET /fleet: what people read about the replicas and the queue."""

from typing import Any

from router.observe.admin.fleet_page import fleet_page, queue_page

NO_QUEUE = {"enabled": False}


def replica(id: str = "gpu-1", **facts: Any) -> dict[str, Any]:
    usual = {
        "id": id,
        "state": "ready",
        "engine": "vllm",
        "models": ["m"],
        "region": None,
        "inflight": 3,
        "slots": 15.6,
        "waiting": 2,
        "kv_usage_estimate": 0.25,
        "served": 12_345,
        "ttft_s": 0.1234,
        "tpot_s": None,
        "reclaimed_in_s": None,
        "busy_s": 0.0,
        "closed_to": {},
        "failed": 0,
        "why": None,
        "since_s": 4000.0,
        "ejected_s": 0.0,
        "panic": False,
        "weight": 1.0,
        "weight_configured": 1.0,
    }
    return {**usual, **facts}


def pool(waiting: int, eldest_s: float) -> dict[str, Any]:
    counts = {
        "waiting": waiting,
        "blocked": 1,
        "eldest_s": eldest_s,
        "passed": 5,
        "granted": 4,
        "dropped": {"queue_full": 2, "left": 1},
    }
    return {"classes": {"high": counts, "batch": counts}}


def row(text: str, name: str) -> list[str]:
    (found,) = [line.split() for line in text.splitlines() if line.split()[:1] == [name]]
    return found


def joined(text: str, name: str) -> str:
    return " ".join(row(text, name))


def test_a_replica_is_a_row_with_units() -> None:
    text = fleet_page(
        [replica(), replica("gpu-2", state="down", engine=None, models=None)], NO_QUEUE
    )
    assert text.startswith("1 of 2 replicas ready (1 down); 6 requests in flight; no queue\n")
    assert joined(text, "gpu-1") == "gpu-1 ready vllm m 3 16 2 25.0 123 – 12,345 0"
    assert row(text, "gpu-2")[1:4] == ["down", "–", "–"]
    assert "region" not in text and "class" not in text


def test_a_region_has_a_column_if_a_replica_has_one() -> None:
    text = fleet_page([replica(), replica("gpu-2", region="eu")], NO_QUEUE)
    assert row(text, "gpu-1")[4] == "–"
    assert row(text, "gpu-2")[4] == "eu"


def test_the_note_says_why_a_replica_gets_no_requests() -> None:
    closed = {"low": "headroom", "batch": "headroom", "high": "limit"}
    found = replica(reclaimed_in_s=29.6, busy_s=1.25, closed_to=closed)
    (line,) = [line for line in fleet_page([found], NO_QUEUE).splitlines() if "gpu-1" in line]
    assert line.endswith(
        " reclaimed in 30 s; avoided for 1.2 s after error answers; closed to low, batch: "
        "headroom; closed to high: limit"
    )


def note(**facts: Any) -> str:
    """The note of one replica."""
    (line,) = [x for x in fleet_page([replica(**facts)], NO_QUEUE).splitlines() if "gpu-1" in x]
    return line.partition("12,345")[2].strip().partition(" ")[2].strip()


def test_the_note_says_the_reason_and_the_time_of_every_state_but_ready() -> None:
    assert note() == ""
    assert note(state="down", why="connection refused", since_s=59.4) == (
        "for 59 s: connection refused"
    )
    assert note(state="ejected", why="5 failures", since_s=12.0, ejected_s=18.2) == (
        "for 12 s: 5 failures; trial in 18 s"
    )
    assert note(state="unknown", since_s=7_300.0) == "for 2 h"
    assert note(why="suspect: no first token") == "suspect: no first token"
    assert note(state="down", why="x", panic=True).endswith(
        "; gets requests, because too few replicas of its models are ready"
    )


def test_the_note_has_a_weight_that_is_not_1() -> None:
    assert note(weight=0.25, weight_configured=2.0) == "weight 0.25 of 2"
    assert note(weight=2.0, weight_configured=2.0) == "weight 2"


def test_a_reason_from_an_engine_cannot_write_to_the_terminal() -> None:
    text = note(state="down", why="\x1b[2J" + "x" * 500)
    assert text == "for 1 h: ?[2J" + "x" * 195 + "…"


def test_the_queue_is_a_page_of_classes_and_tenants() -> None:
    one = {**pool(3, 0.5), "waiting": 3, "replicas": ["gpu-1"]}
    two = {**pool(4, 2.5), "waiting": 4, "replicas": [f"gpu-{n}" for n in range(10)]}
    tenants = [{"key": "acme\n", "user": "", "waiting": 7}]
    shared = {"enabled": True, "waiting": 7, "tenants": tenants, "tenants_unnamed": 2}
    text = queue_page({**shared, "pools": [one, two]})
    assert text.startswith("7 requests wait in the queue\n\n3 wait for gpu-1\n")
    assert (
        "\n4 wait for gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and 2 more\n" in text
    )
    assert joined(text, "acme?") == "acme? – 7"
    assert text.endswith("\nand 2 more tenants\n")
    assert "wait for" not in queue_page({**shared, "pools": [one]})
    assert queue_page({"enabled": False}).startswith("the queue is off")


def test_the_classes_of_all_pools_are_added() -> None:
    queue = {"enabled": True, "waiting": 1_007, "pools": [pool(3, 0.5), pool(4, 2.5)]}
    text = fleet_page([], queue)
    assert text.startswith(
        "0 of 0 replicas ready; 0 requests in flight; 1,007 waiting in the queue\n"
    )
    assert joined(text, "high") == "high 7 2 2.50 10 8 6"
    assert joined(text, "batch") == "batch 7 2 2.50 10 8 6"


def test_names_of_engines_cannot_write_to_the_terminal() -> None:
    found = replica("a\x1b[2Jb", models=["\n\u202em" + "x" * 50, "n"])
    text = fleet_page([found], NO_QUEUE)
    assert row(text, "a?[2Jb")[3] == "??m" + "x" * 36 + "…"
    assert all(char.isprintable() or char == "\n" for char in text)
