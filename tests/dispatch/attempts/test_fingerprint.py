"""The fingerprint of a removed event is added to the last event with a reason, and no other bytes
change.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.usage.usage_tap import Closing

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
QUOTED = b'data: {"choices":[{"delta":{"content":"\\"finish_reason\\":\\"x"}}]}\n\n'
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
OTHER = b'data: {"choices":[{"index":1,"finish_reason":"length"}]}\n\n'
NULL = b'data: {"choices":[{"delta":{},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
PRINT = b'"fp_1"'


def stamped(event: bytes, fingerprint: bytes = PRINT) -> bytes:
    return event[:-3] + b',"system_fingerprint":' + fingerprint + event[-3:]


@pytest.mark.parametrize("event", [TOKEN, QUOTED, NULL, DONE, b": comment\n\n"])
def test_other_events_are_not_held(event: bytes) -> None:
    closing = Closing()
    assert closing.pass_on(event) == event
    assert closing.held == b""


def test_the_fingerprint_is_added_to_the_held_event() -> None:
    closing = Closing()
    closing.pass_on(FINISH)
    closing.fingerprint = PRINT
    assert closing.pass_on(DONE) == stamped(FINISH) + DONE
    assert (closing.held, closing.fingerprint) == (b"", b"")
    assert closing.pass_on(FINISH) == b""  # the fingerprint is used once
    assert closing.release(DONE) == FINISH + DONE


def test_an_event_that_has_a_fingerprint_keeps_its_own() -> None:
    own = stamped(FINISH, b'"fp_0"')
    closing = Closing()
    closing.fingerprint = PRINT
    assert closing.pass_on(own + DONE) == own + DONE
    # A fingerprint in an earlier event is not that of the event with the reason.
    earlier = stamped(TOKEN, b'"fp_0"')
    closing.fingerprint = PRINT
    assert closing.pass_on(earlier + FINISH) == earlier + stamped(FINISH)


@pytest.mark.parametrize("data", [DONE, b"", TOKEN, FINISH[:-3], b'"finish_reason":"'])
def test_without_a_whole_event_to_add_it_to_the_fingerprint_is_lost(data: bytes) -> None:
    closing = Closing()
    closing.fingerprint = PRINT
    assert closing.pass_on(data) == data
    assert closing.fingerprint == b""


def test_a_fingerprint_of_any_json_is_copied_as_it_is() -> None:
    for fingerprint in (b"null", b'"a\\"b"', b'"%b %d"'):
        closing = Closing()
        closing.pass_on(FINISH)
        closing.fingerprint = fingerprint
        assert closing.release(DONE) == stamped(FINISH, fingerprint) + DONE


@given(st.lists(st.sampled_from([TOKEN, QUOTED, FINISH, OTHER, NULL, DONE]), max_size=9), st.data())
def test_without_a_fingerprint_every_byte_passes_and_one_event_is_held_at_most(
    events: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(events)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    closing, passed = Closing(), b""
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        passed += closing.pass_on(stream[start:end])
        assert passed + closing.held == stream[:end]
        assert closing.held in (b"", FINISH, OTHER) or stream[:end].endswith(closing.held)
        # One event, and the line end before it.
        assert len(closing.held) <= len(OTHER) + 1
    assert passed + closing.release(b"") == stream


@given(st.lists(st.binary(max_size=30), max_size=6), st.booleans())
def test_any_bytes_pass(pieces: list[bytes], has_print: bool) -> None:
    closing, passed = Closing(), b""
    for piece in pieces:
        passed += closing.pass_on(piece)
    if has_print:
        closing.fingerprint = PRINT
    passed += closing.release(b"")
    assert passed.replace(b',"system_fingerprint":' + PRINT, b"") == b"".join(pieces)
