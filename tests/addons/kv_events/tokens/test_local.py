"""Local tokenizing with real tokenizers: equal to tokenizing the whole text, and cheaper."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from router.addons.kv_events.tokens.facts import MAX_BYTES, Facts
from router.addons.kv_events.tokens.local import LocalTokenizer, PrefixCache
from tests.addons.kv_events.tokens.models import CHATML, build, chat, ids, raw, save

KINDS = ("byte_level", "metaspace", "prepend")
LONG = "You are a helpful assistant and you know where things are. " * 20


def chat_facts(messages: Any, **more: Any) -> Facts:
    return Facts("chat", "m", messages=raw(messages), **more)


def whole(kind: str, text: str) -> list[int]:
    encoded: list[int] = build_once(kind).encode(text, add_special_tokens=False).ids
    return encoded


@cache
def build_once(kind: str) -> Any:
    return build(kind)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def tokenizer(folder: Path) -> LocalTokenizer:
    return LocalTokenizer(folder)


def test_a_chat(tokenizer: LocalTokenizer) -> None:
    found = ids(tokenizer.tokens(chat_facts(chat("Be kind.", "hello"))))
    text = (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert found == whole("byte_level", text)


@pytest.mark.parametrize(
    "facts",
    [
        Facts("embeddings", prompt=raw("text")),
        Facts("chat"),
        Facts("chat", messages=b"{"),
        Facts("chat", messages=b"[]"),
        Facts("chat", messages=raw([{"content": "no role"}])),
        Facts("chat", messages=raw(["hello"])),
        chat_facts([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        Facts("completions", prompt=raw(["one", "two"])),
        Facts("completions", prompt=raw([[1], [2]])),
        Facts("completions", prompt=raw({"prompt_embeds": "..."})),
        Facts("completions", prompt=raw("x" * MAX_BYTES)),
    ],
)
def test_what_has_no_token_ids_here(tokenizer: LocalTokenizer, facts: Facts) -> None:
    assert tokenizer.tokens(facts) is None


def test_a_growing_conversation_is_tokenized_once(tokenizer: LocalTokenizer) -> None:
    texts = [LONG, "first question", "first answer", "second question", "second answer", "third"]
    fresh = 0
    for turns in (2, 4, 6):
        facts = chat_facts(chat(*texts[:turns]))
        before = tokenizer.encoded_chars
        found = ids(tokenizer.tokens(facts))
        fresh = tokenizer.encoded_chars - before
        again = "".join(
            f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
            for message in chat(*texts[:turns])
        )
        assert found == whole("byte_level", again + "<|im_start|>assistant\n")
    assert fresh < 200 < len(LONG)
    assert tokenizer.cache.hits == 2


PIECES = st.lists(
    st.sampled_from(["<|im_start|>", "<|im_end|>", "</s>", "<mask>", "<|im_start|>x", "<s", "\n"])
    | st.sampled_from([" ", "  ", "hello", " hello", "the dog", "x", "ä", "漢", LONG])
    | st.text(max_size=5),
    max_size=12,
)


@cache
def of_kind(kind: str) -> LocalTokenizer:
    return LocalTokenizer(save(Path(mkdtemp()), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_cut_texts_are_tokenized_like_whole_ones(kind: str) -> None:
    tokenizer = of_kind(kind)

    @settings(max_examples=150, deadline=None)
    @given(PIECES, PIECES)
    def check(first: list[str], second: list[str]) -> None:
        begin = LONG + "".join(first)
        for text in (begin, begin + "".join(second)):
            assert ids(tokenizer.encode(text)) == whole(kind, text)

    check()
    assert tokenizer.cache.hits > 0


def test_the_cache_is_bounded() -> None:
    kept = PrefixCache(2000)
    for number in range(100):
        kept.put(b"%d" % number, b"x" * 300)
        assert kept.bytes <= 2000
    assert len(kept) == 4
    assert kept.get(b"99") is not None and kept.get(b"0") is None
    kept.put(b"96", b"y")
    kept.put(b"100", b"x" * 300)
    assert kept.get(b"96") == b"y"  # this entry was used recently
    kept.put(b"large", b"x" * 3000)
    assert (len(kept), kept.bytes) == (0, 0)


# -- files ----------------------------------------------------------------------------------------


def test_a_template_of_its_own_file(tmp_path: Path) -> None:
    save(tmp_path, template="{{ raise_exception('the old one') }}")
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    assert LocalTokenizer(tmp_path / "tokenizer.json").tokens(chat_facts(chat("a"))) is not None


def test_without_a_template_there_are_no_chats(tmp_path: Path) -> None:
    tokenizer = LocalTokenizer(save(tmp_path, template=None))
    assert not tokenizer.has_template
    assert tokenizer.tokens(chat_facts(chat("a"))) is None
    assert tokenizer.tokens(Facts("completions", prompt=raw("a"))) is not None


def test_saved_truncation_and_padding_are_not_for_prompts(tmp_path: Path) -> None:
    save(tmp_path)
    file = tmp_path / "tokenizer.json"
    short = json.loads(file.read_text())
    short["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    file.write_text(json.dumps(short))
    assert len(ids(LocalTokenizer(tmp_path).encode(LONG))) > 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "["),
        ("tokenizer_config.json", '{"chat_template": "{% for %}"}'),
        ("chat_template.jinja", "{{ unclosed"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: str) -> None:
    save(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=r"cannot be read"):
        LocalTokenizer(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        LocalTokenizer(tmp_path / "nothing")


@pytest.mark.parametrize("prompt", [[7, 8, 9], [[7, 8, 9]]])
def test_token_ids_are_taken_as_they_are(tokenizer: LocalTokenizer, prompt: Any) -> None:
    assert ids(tokenizer.tokens(Facts("completions", "m", prompt=raw(prompt)))) == [7, 8, 9]


def test_parts_of_text_are_joined(tokenizer: LocalTokenizer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    found = tokenizer.tokens(chat_facts([{"role": "user", "content": parts}]))
    assert found == tokenizer.tokens(chat_facts([{"role": "user", "content": "one\ntwo"}]))


def test_one_template_of_several(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    found = LocalTokenizer(save(tmp_path, template=named)).tokens(chat_facts(chat("a")))
    text = "<|im_start|>system\na<|im_end|>\n<|im_start|>assistant\n"
    assert ids(found) == whole("byte_level", text)
