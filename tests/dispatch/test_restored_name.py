"""The client's model name in responses, however the response comes in pieces."""

import pytest

from router.dispatch.restored_name import RestoredName

EVENT = b'data: {"id":"1","model":"llama","choices":[{"delta":{"content":"hi"}}]}\n\n'
CASES = [
    (EVENT, EVENT.replace(b"llama", b"chat")),
    (EVENT * 3 + b"data: [DONE]\n\n", EVENT.replace(b"llama", b"chat") * 3 + b"data: [DONE]\n\n"),
    (b'{"model": "llama-2024", "n": 1}', b'{"model": "chat", "n": 1}'),
    (b'{"response":{"model":"a\\"b\\\\"}}', b'{"response":{"model":"chat"}}'),
    # Generated text that looks like a member: its quotes are escaped.
    (b'{"text":"{\\"model\\":\\"llama\\"}"}', b'{"text":"{\\"model\\":\\"llama\\"}"}'),
    (b'{"model":null,"x":"model"}', b'{"model":null,"x":"model"}'),
    (b'{"model":', b'{"model":'),
    (b'{"model":"never ends', b'{"model":"never ends'),
    (b'"mode"mo"model"', b'"mode"mo"model"'),
    (b"", b""),
]


def passed(pieces: list[bytes]) -> bytes:
    restored = RestoredName("chat")
    look = restored.after(None)
    return b"".join([look(piece) for piece in pieces]) + restored.flush()


@pytest.mark.parametrize(("before", "after"), CASES)
def test_only_the_name_changes(before: bytes, after: bytes) -> None:
    assert passed([before]) == after
    assert passed([before[at : at + 1] for at in range(len(before))]) == after
    for at in range(len(before)):
        assert passed([before[:at], before[at:]]) == after


def test_a_whole_event_is_relayed_at_once() -> None:
    restored = RestoredName("chat")
    assert restored.feed(EVENT) == EVENT.replace(b"llama", b"chat")
    assert restored.feed(b": ping\n\n") == b": ping\n\n"
    assert restored.flush() == b""


def test_a_name_without_end_is_not_held_for_ever() -> None:
    restored = RestoredName("chat")
    data = b'{"model":"' + b"x" * 5000
    out = b"".join(restored.feed(data[at : at + 100]) for at in range(0, len(data), 100))
    assert len(data) - len(out) <= 1024
    assert out + restored.flush() == data


def test_the_name_comes_after_the_look_of_the_counts() -> None:
    restored = RestoredName("chat")
    seen: list[bytes] = []

    def look(data: bytes) -> bytes:
        seen.append(data)
        return data

    assert restored.after(look)(EVENT) == EVENT.replace(b"llama", b"chat")
    assert seen == [EVENT]
