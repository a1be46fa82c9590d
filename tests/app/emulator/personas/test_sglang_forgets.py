"""SGLang 0.5.14 to 0.5.19: an abandoned stream continues, and an abort does not find it."""

from tests.app.emulator.conftest import Fleet
from tests.app.emulator.test_server import LONG, raw_post

OPTIONS = ("--persona=sglang", "--forget-leavers")


def stream(fleet: Fleet, rid: str, tokens: int) -> None:
    sock = raw_post(
        fleet.url, "/v1/completions", {**LONG, "max_tokens": tokens, "stream": True, "rid": rid}
    )
    assert sock.recv(1)
    sock.close()
    for _ in range(3):  # each request is answered after the close was seen and handled
        fleet.state()


def abort(fleet: Fleet, rid: str) -> None:
    assert fleet.post("/abort_request", json={"rid": rid}).status_code == 200


def test_a_closed_stream_runs_to_its_last_token_whoever_aborts_it_then(fleet: Fleet) -> None:
    before = fleet.state()
    stream(fleet, "left", 100)
    abort(fleet, "left")
    fleet.until(lambda: fleet.state()["served"] == before["served"] + 1, "served to its end")
    after = fleet.state()
    assert after["generation_tokens"] == before["generation_tokens"] + 100
    assert after["aborted"] == before["aborted"]


def test_one_that_is_aborted_first_ends_at_once(fleet: Fleet) -> None:
    before = fleet.state()
    sock = raw_post(fleet.url, "/v1/completions", {**LONG, "stream": True, "rid": "read"})
    assert sock.recv(1)
    abort(fleet, "read")
    fleet.until(lambda: not fleet.state()["running"], "gone")
    sock.close()
    assert fleet.state()["aborted"] == before["aborted"] + 1
