"""Answers of Prometheus' HTTP API, in the format of its documentation."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from router.lab.plan.sources.prometheus_api import POINTS_MAX, Prometheus, PrometheusError, parse

MATRIX = (
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up",'
    b'"job":"prometheus"},"values":[[1435781430.781,"1"],[1435781445.781,"NaN"],'
    b'[1435781460.781,"2.5"]]}]},"warnings":["x"]}'
)
VECTOR = (
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"a"},'
    b'"value":[1435781451.781,"1"]},{"metric":{"job":"b"},"value":[1435781451.781,"+Inf"]}]}}'
)
REFUSED = (
    b'{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\": 1:5: '
    b'parse error: unexpected end of input"}'
)


def test_a_matrix() -> None:
    (one,), warnings = parse(MATRIX, "matrix", "x")
    assert warnings == ["x"]
    assert one.labels == {"__name__": "up", "job": "prometheus"}
    assert one.samples == ((1435781430.781, 1.0), (1435781460.781, 2.5))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (REFUSED, 'where: bad_data: invalid parameter "query": 1:5: parse error'),
        (VECTOR, "where: the result must be a matrix, not a vector"),
        (b"<html>404</html>", "where: the answer is not that of Prometheus: '<html>404</html>'"),
        (b'{"status":"success"}', "where: the answer cannot be read"),
        (MATRIX.replace(b'"2.5"', b'"two"'), "where: the answer cannot be read"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{}]}}', "cannot be read"),
        (b"\xff", "not that of Prometheus"),
    ],
)
def test_an_error_says_what_the_server_said(body: bytes, words: str) -> None:
    with pytest.raises(PrometheusError) as caught:
        parse(body, "matrix", "where")
    assert words in str(caught.value)


class Server:
    """Answers every query with the times that it asks for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []

    def __call__(self, url: str) -> bytes:
        parts = urlsplit(url)
        self.paths.append(parts.path)
        words = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(words)
        begin, end, step = (float(words[name]) for name in ("start", "end", "step"))
        values = []
        at = begin
        while at <= end:
            values.append([at, "1"])
            at += step
        data: dict[str, Any] = {
            "resultType": "matrix",
            "result": [{"metric": {}, "values": values}],
        }
        return json.dumps({"status": "success", "data": data}).encode()


def test_a_range_is_asked_for_once() -> None:
    server = Server()
    (one,) = Prometheus("http://p:9090/prefix/", server).query_range("up == 1", 0.0, 600.0, 60.0)
    assert len(one.samples) == 11
    assert server.paths == ["/prefix/api/v1/query_range"]
    assert server.asked == [
        {"query": "up == 1", "start": "0.000", "end": "600.000", "step": "60.000"}
    ]


def test_a_long_range_is_asked_for_in_parts() -> None:
    server = Server()
    end = 60.0 * (2 * POINTS_MAX)
    (one,) = Prometheus("https://p", server).query_range("up", 0.0, end, 60.0)
    assert len(server.asked) == 3
    times = [at for at, _ in one.samples]
    assert times == [60.0 * number for number in range(2 * POINTS_MAX + 1)]


def test_credentials_in_the_url_are_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="contains a user name") as caught:
        Prometheus("https://me:secret@p", lambda _: b"")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://p", "http://", "http://p/?x=1"])
def test_a_url_must_be_one(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL such as"):
        Prometheus(url, lambda _: b"")
