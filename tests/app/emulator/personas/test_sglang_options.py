"""SGLang with other options: reversed priority numbers, a full queue, no metrics."""

import zmq

from tests.app.emulator.conftest import Fleet
from tests.app.emulator.test_server import LONG, raw_post

OPTIONS = (
    "--persona=sglang",
    "--schedule-low-priority-values-first",
    "--max-queued-requests=1",
    "--no-metrics",
    "--kv-events",
)


def test_a_full_queue_gives_up_its_worst_for_a_better_one_only(fleet: Fleet) -> None:
    fleet.faults(freeze=True)
    first = raw_post(fleet.url, "/v1/completions", {**LONG, "priority": 0, "stream": True})
    fleet.until(lambda: fleet.state()["waiting"] == 1, "the queue is full")
    refused = fleet.post("/v1/completions", json={**LONG, "priority": 1})
    assert (refused.status_code, refused.json()["object"]) == (503, "error")
    better = raw_post(fleet.url, "/v1/completions", {**LONG, "priority": -1})
    answer = first.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"aborted by a higher priority request" in answer
    fleet.post("/abort_request", json={"abort_all": True})
    for sock in (first, better):
        sock.close()


def test_without_metrics_there_are_loads(fleet: Fleet) -> None:
    assert fleet.get("/metrics").status_code == 404
    assert fleet.get("/v1/loads").status_code == 200


def test_its_server_info_tells_where_kv_events_come(fleet: Fleet) -> None:
    told = fleet.get("/server_info").json()["kv_events"]
    assert (told["endpoint_host"], told["block_size"], told["dp_size"]) == ("*", 16, 1)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RCVTIMEO, 10_000)
        dealer.connect(f"tcp://127.0.0.1:{told['replay_endpoint_port_base']}")
        dealer.send_multipart([b"", b"\xff" * 8])
        assert dealer.recv_multipart()[2] == b"\xff" * 8
