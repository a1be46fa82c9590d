"""Every recorded answer of every engine and version gives exactly the values in the table."""

import pytest

from router.fleet.engines.common.base import Facts, TextSource
from router.fleet.engines.common.exposition import Reader
from router.fleet.engines.common.registry import ENGINES
from tests.fleet.engines.pages import FOLDER, Page, pages, read

FACTS = {
    "tgi-info.json": Facts(kv_tokens=98304, context_tokens=4096, version="2.4.1"),
    "llamacpp-props.json": Facts(
        slots=4, kv_tokens=262144, context_tokens=65536, version="b6789-abc"
    ),
    "sglang-server-info.json": Facts(
        slots=256,
        kv_tokens=442880,
        block_tokens=64,
        context_tokens=32768,
        version="0.5.23",
        low_first=False,
    ),
}


TEXTS = [page for page in pages() if page.name.endswith(".txt")]


def test_every_file_has_its_row() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"expected.json"}
    assert files == {page.name for page in pages()} | FACTS.keys()


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_do_not_matter(page: Page, size: int) -> None:
    source = page.source
    assert isinstance(source, TextSource)
    body = page.body[:6000] if size == 1 else page.body
    reader = Reader(source.wanted)
    for at in range(0, len(body), size):
        assert reader.feed(body[at : at + size])
    assert source.parse_samples(reader.end(), page.known, None) == source.parse(body, page.known)


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    source = ENGINES[name.partition("-")[0]].facts
    assert source is not None
    assert source.parse(read(name)) == FACTS[name]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
@pytest.mark.parametrize("ending", [b"\r\n", b" \n", b" 1795174662000\n", b' # {id="x"} 1.0 1.5\n'])
def test_line_ends_timestamps_and_exemplars_are_nothing_to_us(page: Page, ending: bytes) -> None:
    body = b"".join(
        line + (b"\n" if line.startswith(b"#") or not line else ending)
        for line in page.body.splitlines()
    )
    assert page.source.parse(body, page.known) == page.signals
