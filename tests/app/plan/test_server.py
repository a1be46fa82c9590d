"""The gauges over HTTP, and the whole command in front of a Prometheus server."""

import argparse
import json
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from router.lab.plan.command import add_arguments, main
from router.lab.plan.output.gauges import DESIRED, GaugeServer, registry
from tests.app.plan.test_http_fetch import Handler, serving
from tests.lab.plan.output.plans import plan


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def test_the_newest_plan_is_served() -> None:
    server = GaugeServer("127.0.0.1", 0)
    try:
        assert DESIRED not in get(server.port)
        server.plan = registry(plan(), 1.0)
        assert f'{DESIRED}{{model="m",region="eu",type="gpu"}} 4.0' in get(server.port)
    finally:
        server.close()


def test_an_address_in_use_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    server = GaugeServer("127.0.0.1", 0)
    try:
        assert run("a.log", "--serve", f"127.0.0.1:{server.port}") == 1
    finally:
        server.close()
    assert "hedgerow plan: cannot listen: " in capsys.readouterr().err


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return main(parser.parse_args(words))


class Counters(Handler):
    """Answers like a Prometheus server that has scraped Hedgerow for the whole history."""

    def do_GET(self) -> None:
        words = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        result = []
        if "model_requests" in words["query"] or 'kind="output"' in words["query"]:
            at, end, step = (float(words[name]) for name in ("start", "end", "step"))
            values = []
            while at <= end:
                values.append([at, "9000"])
                at += step
            result = [{"metric": {"model": "m"}, "values": values}]
        kind = "matrix" if "start" in words else "vector"
        data = {"status": "success", "data": {"resultType": kind, "result": result}}
        type(self).body = json.dumps(data).encode()
        super().do_GET()


def test_a_plan_from_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types, token = tmp_path / "plan.yaml", tmp_path / "token"
    types.write_text("types: [{name: gpu, cost: 2, models: {m: {throughput: 4}}}]")
    token.write_text("secret\n")
    with serving(base=Counters) as (url, handler):
        words = ["--types", str(types), "--token-file", str(token), "--history", "4d"]
        assert run("--prometheus", url, *words, "--method", "seasonal", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    # 10 tokens/s at a utilisation of 0.8.
    assert [pool["plan"] for pool in found["pools"]] == [4]
    assert {authorization for _, authorization in handler.seen} == {"Bearer secret"}


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types = tmp_path / "plan.yaml"
    types.write_text("types: [{name: gpu, cost: 2, models: {m: {throughput: 4}}}]")
    with serving() as (url, _):
        pass
    assert run("--prometheus", url, "--types", str(types)) == 1
    assert "cannot be reached" in capsys.readouterr().err
