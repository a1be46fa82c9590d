"""The recorded answers of engines, with the expected signals of each."""

import json
from functools import cache
from typing import Any, NamedTuple

import msgspec

from router.fleet.engines.common.base import NO_FACTS, Facts, JsonSource, Known, Source, TextSource
from router.fleet.engines.common.registry import ENGINES
from router.fleet.signals import Signals
from tests.places import DATA

FOLDER = DATA / "metrics"


class Page(NamedTuple):
    """One answer of an engine, the facts known before the answer, and the expected signals."""

    name: str
    engine: str
    body: bytes
    facts: Facts
    signals: Signals

    @property
    def source(self) -> Source:
        """The engine's source that an answer of this form comes from."""
        kind = JsonSource if self.name.endswith(".json") else TextSource
        return next(s for s in ENGINES[self.engine].sources if isinstance(s, kind))

    @property
    def known(self) -> Known:
        return Known(facts=self.facts)


def read(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def page(name: str) -> Page:
    return next(page for page in pages() if page.name == name)


@cache
def pages() -> tuple[Page, ...]:
    """Every recorded answer that contains signals."""
    rows: dict[str, Any] = json.loads(read("expected.json"))
    return tuple(
        Page(
            name,
            row["engine"],
            read(name),
            _facts(row["engine"], row.get("facts")),
            msgspec.convert(row["signals"], Signals),
        )
        for name, row in rows.items()
    )


def _facts(engine: str, name: str | None) -> Facts:
    source = ENGINES[engine].facts
    return NO_FACTS if name is None or source is None else source.parse(read(name))
