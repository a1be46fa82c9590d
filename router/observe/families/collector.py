"""Renders the router's metrics in the text format of Prometheus.

prometheus_client is used only for the format. Its objects are built at each scrape, one metric
family after the other. So a scrape can be split into small pieces, and the event loop serves
requests between two pieces (`render`).

Must never: register anything in prometheus_client's global registry, emit a family outside
`hedgerow_*` and `process_*`, or fail completely because one family fails.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import copy
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as CollectorBase

from router.observe.families import process_families, request_families
from router.observe.families.family import Source
from router.observe.metrics import Metrics

# Maximum number of samples that are formatted in one turn of the event loop; each takes about 5 us.
PIECE_SAMPLES = 200
_GZIP = 16 + zlib.MAX_WBITS  # makes zlib write the gzip format
_EOF = b"# EOF\n"  # the last line of an OpenMetrics text


class Collector(CollectorBase):
    """A prometheus_client collector that reads the metric families of all sources.

    It is the only collector in its registry.
    """

    def __init__(self, metrics: Metrics, *others: Source[Any]) -> None:
        self._sources: tuple[Source[Any], ...] = (
            Source(request_families.FAMILIES, lambda: metrics),
            Source(request_families.TENANTS, lambda: request_families.named(metrics.usage)),
            *others,
            Source(process_families.FAMILIES, lambda: None),
        )
        self._added = metrics.added
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        # Adds what other processes have counted; None: there are none.
        self.combine: Callable[[Iterable[Metric]], Awaitable[Iterable[Metric]]] | None = None
        self._running: dict[tuple[str, bool], asyncio.Task[bytes]] = {}  # The texts in progress.

    def describe(self) -> Iterable[Metric]:
        """Return nothing, because the sources may not be readable yet at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields every metric family that has values. All values of a family are read at once."""
        for source in (*self._sources, *self._added.values()):
            yield from source.metrics()

    async def render(self, accept: str = "", is_zipped: bool = False) -> tuple[bytes, str]:
        """Return the text of all metrics, and its content type according to the Accept header.

        `is_zipped`: compress the text with gzip. Lets the event loop run after every family, and
        after every PIECE_SAMPLES samples of a large family. A scrape of a thousand replicas takes
        20 ms, and a piece about 1 ms. A thread would be worse, because it would hold the GIL for 5
        ms at a time. Scrapes at the same time get the same text, because a port without a token may
        get many of them.
        """
        encode, content_type = choose_encoder(accept)
        key = content_type, is_zipped
        running = self._running.get(key)
        if running is None:
            running = asyncio.ensure_future(self._text(encode, is_zipped))
            running.add_done_callback(lambda _: self._running.pop(key))
            self._running[key] = running
        return await asyncio.shield(running), content_type

    async def _text(self, encode: Callable[[Any], bytes], is_zipped: bool) -> bytes:
        compressor = zlib.compressobj(wbits=_GZIP) if is_zipped else None
        parts = []
        ended = False
        families: Iterable[Metric] = self.collect()
        if self.combine is not None:
            families = await self.combine(families)
        for family in families:
            for piece in _pieces(family):
                text = encode(_OneFamily(piece))
                if text.endswith(_EOF):
                    text, ended = text[: -len(_EOF)], True
                text = text if piece is family else _without_header(text)
                parts.append(text if compressor is None else compressor.compress(text))
                await asyncio.sleep(0)
        end = _EOF if ended else b""
        parts.append(end if compressor is None else compressor.compress(end) + compressor.flush())
        return b"".join(parts)


def _pieces(family: Metric) -> Iterator[Metric]:
    """Splits a family into families with at most PIECE_SAMPLES samples each."""
    samples = family.samples
    family.samples = samples[:PIECE_SAMPLES]
    yield family
    for start in range(PIECE_SAMPLES, len(samples), PIECE_SAMPLES):
        piece = copy(family)
        piece.samples = samples[start : start + PIECE_SAMPLES]
        yield piece


def _without_header(text: bytes) -> bytes:
    """Removes the lines HELP and TYPE, which are written once, before a family's first sample."""
    while text.startswith(b"#"):
        text = text[text.index(b"\n") + 1 :]
    return text


class _OneFamily(CollectorBase):
    """A registry with one metric family, which is passed to prometheus_client's encoder."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
