"""A router that goes on reading for clients that have left is told apart, and told."""

from __future__ import annotations

import socket

import pytest

from bench.overhead import measure, shapes
from bench.overhead.processes import Orderly, Placement


def test_streams_nobody_reads_for_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SETTLE_S", 1.0)
    with Orderly("bench.overhead.upstream", "2") as upstream:
        ports = upstream.read()
        # No load generator: nothing is measured here.
        series = measure.Series(measure.Plan(), Placement(), upstream, ports)
        quiet = measure.Row("quiet")
        assert series._settled(quiet) and quiet.problems == {}
        prompt = shapes.Prompt("127.0.0.1", ask=shapes.Ask(100_000, 50.0))
        with socket.create_connection(("127.0.0.1", ports[1])) as reader:
            reader.sendall(prompt.next())
            assert reader.recv(1)
            busy = measure.Row("busy")
            assert not series._settled(busy)
            assert "clients had left" in busy.problems["token_paced"][0]
        monkeypatch.setattr(measure, "SETTLE_S", 30.0)
        assert series._settled(measure.Row("gone"))
