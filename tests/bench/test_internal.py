"""The internal overhead is taken from the real classes, request by request."""

from __future__ import annotations

from pathlib import Path

import uvloop

from bench.overhead import internal, shapes


def test_each_request_goes_all_the_way_and_takes_some_time(tmp_path: Path) -> None:
    async def run() -> tuple[list[float], int, float]:
        bench = internal.Bench(tmp_path)
        try:
            prompt = shapes.Prompt("127.0.0.1:8080")
            spent = [await bench.one(prompt.next()) for _ in range(50)]
            return spent, bench.answered, bench.decode(b'{"model":"bench","messages":[]}')
        finally:
            bench.close()

    spent, answered, decode = uvloop.run(run())
    assert answered == 50
    assert min(spent) > 0 and decode > 0
    assert (tmp_path / "access.log").read_text().count("\n") == 50
    assert '"status":200' in (tmp_path / "access.log").read_text().splitlines()[-1]


def test_the_figure_leaves_the_decoding_out() -> None:
    inside = internal.measure(blocks=1)
    assert inside.us is not None and inside.us > 0, inside.note
    assert inside.decode_us is not None and inside.decode_us > 0
