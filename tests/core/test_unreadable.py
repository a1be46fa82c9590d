"""For any bytes read as JSON, every exception of msgspec is caught by one name."""

from typing import Any

import msgspec
import pytest

from router.core.unreadable import NOT_JSON
from router.wire.http1.sse import EventKind, FirstContent
from tests.places import ROOT


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'"\xff"', b'{"a\xff":1}', b"[" * 5000])
@pytest.mark.parametrize("kind", [Any, str, dict[str, msgspec.Raw]])
def test_inputs_that_are_not_json(data: bytes, kind: Any) -> None:
    with pytest.raises(NOT_JSON):
        msgspec.json.decode(data, type=kind)


def test_only_one_module_names_msgspecs_decode_error() -> None:
    for file in (ROOT / "router").rglob("*.py"):
        if file.name != "unreadable.py":
            assert "msgspec.DecodeError" not in file.read_text(), file


def test_a_byte_of_an_engine_that_is_no_text_is_content() -> None:
    event = b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'
    assert FirstContent(1000).feed(event) == EventKind.CONTENT
