"""A router that keeps reading after its clients have left is detected and reported."""

from __future__ import annotations

import socket

import pytest

from bench.overhead import measure
from bench.overhead.plan import Plan
from bench.overhead.row import Row
from router.lab.overhead import shapes
from router.lab.overhead.processes import Orderly


def test_streams_whose_client_does_not_read_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLE_S", 1.0)
    with Orderly("bench.overhead.upstream", "2") as upstream:
        ports = upstream.read()
        # No load generator: nothing is measured here.
        meter = measure.Meter(Plan(), ports, upstream, None)
        quiet = Row("quiet")
        assert meter.settled(quiet) and quiet.problems == {}
        prompt = shapes.Prompt("127.0.0.1", ask=shapes.Ask(100_000, 50.0))
        with socket.create_connection(("127.0.0.1", ports[1])) as reader:
            reader.sendall(prompt.next())
            assert reader.recv(1)
            busy = Row("busy")
            assert not meter.settled(busy)
            assert "clients had left" in busy.problems["token_paced"][0]
        monkeypatch.setattr(measure, "SETTLE_S", 30.0)
        assert meter.settled(Row("gone"))
