"""Renders the router's metrics for Prometheus, from the families that its sources declare.

prometheus_client is used only for the format. Its objects are built per scrape, family by family.
So a scrape can be split into small pieces, between which the event loop serves tokens (`render`).

Must never: register anything in prometheus_client's global registry, emit a family outside
`hedgerow_*`, or fail completely because one family fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as CollectorBase

from router.observe.families import process_families, request_families, tenant_families
from router.observe.families.family import Source
from router.observe.metrics import Metrics

PIECE_SAMPLES = 200  # samples formatted between two turns of the event loop; about 5 us each
_EOF = b"# EOF\n"  # ends an OpenMetrics text


class Collector(CollectorBase):
    """A prometheus_client collector over sources, in a registry that contains only this
    collector.
    """

    def __init__(self, metrics: Metrics, *others: Source[Any]) -> None:
        self._sources: tuple[Source[Any], ...] = (
            Source(request_families.FAMILIES, lambda: metrics),
            Source(tenant_families.FAMILIES, lambda: tenant_families.named(metrics.usage)),
            *others,
            Source(process_families.FAMILIES, lambda: None),
        )
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: the sources may not be readable yet at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields every present family. Each family is read at one instant."""
        for source in self._sources:
            yield from source.metrics()

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type, according to the Accept header.

        Lets the event loop run after every family and every PIECE_SAMPLES of a large one: a scrape
        of a thousand replicas takes 20 ms, a piece about one. A thread would be worse: each of its
        turns holds the GIL for 5 ms.
        """
        encode, content_type = choose_encoder(accept)
        parts = []
        ended = False
        for family in self.collect():
            for piece in _pieces(family):
                text = encode(_OneFamily(piece))
                if text.endswith(_EOF):
                    text, ended = text[: -len(_EOF)], True
                parts.append(text if piece is family else _without_header(text))
                await asyncio.sleep(0)
        if ended:
            parts.append(_EOF)
        return b"".join(parts), content_type


def _pieces(family: Metric) -> Iterator[Metric]:
    """Splits the family into copies that hold at most PIECE_SAMPLES samples each."""
    samples = family.samples
    family.samples = samples[:PIECE_SAMPLES]
    yield family
    for start in range(PIECE_SAMPLES, len(samples), PIECE_SAMPLES):
        piece = copy(family)
        piece.samples = samples[start : start + PIECE_SAMPLES]
        yield piece


def _without_header(text: bytes) -> bytes:
    """The samples only: HELP and TYPE are written once per family, before its first sample."""
    while text.startswith(b"#"):
        text = text[text.index(b"\n") + 1 :]
    return text


class _OneFamily(CollectorBase):
    """A registry for the encoder that contains one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
