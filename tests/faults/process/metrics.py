"""GET /metrics of a running router, read by Prometheus's own parser."""

from prometheus_client.parser import text_string_to_metric_families

from tests.harness.client import RawClient
from tests.harness.messages import request


async def scrape(admin_port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by its name and its labels."""
    client = await RawClient.connect(admin_port)
    try:
        await client.send(request("/metrics", "Connection: close"))
        answer = await client.recv_response()
    finally:
        client.close()
    assert answer.status == 200, answer
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def number(admin_port: int, name: str, **labels: str) -> float:
    """The value of one sample; fails if no sample has this name with exactly these labels."""
    found = await scrape(admin_port)
    key = (name, frozenset(labels.items()))
    assert key in found, sorted(str(k) for k in found if k[0] == name)
    return found[key]
