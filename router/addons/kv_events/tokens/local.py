"""Computes token IDs with a local tokenizer: tokenizer.json and the chat template in the same
folder.

A conversation that has grown is tokenized only from its last cached position on. The text is cut
only before a special token that is not normalized and does not include a space on its left.
Tokenizers split the text at such tokens first and tokenize both sides separately, so the result is
exact.

This code runs in worker threads. Must never: run on the event loop (a long prompt takes many
milliseconds).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec
from xxhash import xxh3_128_digest

from router.addons.kv_events.chains import pack
from router.addons.kv_events.extra import load
from router.addons.kv_events.tokens.facts import Facts, decoded, messages_of, prompt_of, text_of
from router.addons.kv_events.tokens.template import ChatTemplate

_ENTRY_BYTES: Final = 200  # memory of a cache entry in bytes, in addition to its tokens
# The beginning of a text is cached only if it has at least this many characters.
_LEAST_TEXT: Final = 256
_NAMED_TOKENS: Final = (
    *("bos_token", "eos_token", "unk_token", "sep_token"),
    *("pad_token", "cls_token", "mask_token"),
)


class PrefixCache:
    """An LRU cache of token IDs, by the hash of a text or of its beginning. Threads share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0
        self.hits = 0

    def get(self, name: bytes) -> bytes | None:
        with self._lock:
            tokens = self._entries.get(name)
            if tokens is not None:
                self._entries.move_to_end(name)
                self.hits += 1
            return tokens

    def put(self, name: bytes, tokens: bytes) -> None:
        with self._lock:
            old = self._entries.pop(name, None)
            if old is not None:
                self.bytes -= len(old) + _ENTRY_BYTES
            self._entries[name] = tokens
            self.bytes += len(tokens) + _ENTRY_BYTES
            while self.bytes > self._most and self._entries:
                _, dropped = self._entries.popitem(last=False)
                self.bytes -= len(dropped) + _ENTRY_BYTES

    def __len__(self) -> int:
        return len(self._entries)


class LocalTokenizer:
    """The tokenizer of one model."""

    def __init__(self, path: str | Path, cache_bytes: int = 32 * 1024 * 1024) -> None:
        """`path`: a folder in the format of a model's repository, or its tokenizer.json.

        Raises ConfigError if a package is missing, ValueError for unusable files.
        """
        tokenizers: Any = load("tokenizers", "tokenizers", "prefix.tokenizers")
        file = Path(path)
        folder = file if file.is_dir() else file.parent
        file = file / "tokenizer.json" if file.is_dir() else file
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as err:  # the tokenizer library raises `Exception` itself
            raise ValueError(f"{str(file)!r} cannot be read: {err}") from None
        # Truncation and padding saved for training or batching must not change a prompt.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._template = _template_of(folder)
        self._added, self._cuts = _cuts_of(self._tokenizer)
        self.cache = PrefixCache(cache_bytes)
        self.encoded_chars = 0  # number of tokenized characters; it shows the effect of the cache

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def tokens(self, facts: Facts) -> bytes | None:
        """Return the packed token IDs of a request; `None`: this tokenizer cannot compute them.

        Raises the template's exceptions.
        """
        raw = text_of(facts)
        if raw is None:
            return None
        if facts.kind == "chat":
            messages = messages_of(raw)
            if messages is None or self._template is None:
                return None
            kwargs = decoded(facts.template_kwargs)
            text = self._template.render(
                messages, decoded(facts.tools), kwargs if isinstance(kwargs, dict) else None
            )
            return self.encode(text)
        prompt = prompt_of(raw)
        if isinstance(prompt, list):
            return pack(prompt)
        return None if prompt is None else self._encode(prompt, add_special_tokens=True)

    def encode(self, text: str) -> bytes:
        """Return the packed token IDs of a text that already contains its special tokens."""
        start, before = 0, b""
        places = self._places(text)
        names = _names(text, places)
        for place, name in zip(reversed(places), reversed(names), strict=True):
            known = self.cache.get(name)
            if known is not None:
                start, before = place, known
                break
        if not places:
            return before + self._encode(text[start:], add_special_tokens=False)
        last = places[-1]
        if last > start:
            before += self._encode(text[start:last], add_special_tokens=False)
            self.cache.put(names[-1], before)
        return before + self._encode(text[last:], add_special_tokens=False)

    def _places(self, text: str) -> list[int]:
        """Return the positions where the text may be cut and where a cache entry is useful."""
        if not self._cuts:
            return []
        return [
            found.start()
            for found in self._added.finditer(text)
            if found.start() >= _LEAST_TEXT and found.group() in self._cuts
        ]

    def _encode(self, text: str, add_special_tokens: bool) -> bytes:
        self.encoded_chars += len(text)
        # The batch method of the tokenizer releases the GIL, and its "fast" variant computes no
        # offsets.
        (encoding,) = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        return pack(encoding.ids)


def _names(text: str, places: list[int]) -> list[bytes]:
    """Return a hash of the text up to each position. Each hash includes the one before it."""
    name, at, names = b"", 0, []
    for place in places:
        name = xxh3_128_digest(name + text[at:place].encode("utf-8", "surrogatepass"))
        names.append(name)
        at = place
    return names


def _cuts_of(tokenizer: Any) -> tuple[re.Pattern[str], frozenset[str]]:
    """Return a pattern of the tokens that the tokenizer splits off first, and those of the tokens
    before which a text may be cut."""
    cuts, first = set(), []
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.normalized or not token.content:
            continue
        first.append(token.content)
        if not token.lstrip and not token.single_word:
            cuts.add(token.content)
    # The longest tokens come first, because the tokenizer itself prefers them.
    first.sort(key=len, reverse=True)
    return re.compile("|".join(map(re.escape, first))), frozenset(cuts)


def _template_of(folder: Path) -> ChatTemplate | None:
    """Return the chat template, from its own file or from tokenizer_config.json."""
    config: dict[str, Any] = {}
    try:
        raw = (folder / "tokenizer_config.json").read_bytes()
        config = msgspec.json.decode(raw, type=dict[str, Any])
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError, ValueError) as err:
        raise ValueError(f"tokenizer_config.json cannot be read: {err}") from None
    source = config.get("chat_template")
    try:
        source = (folder / "chat_template.jinja").read_text("utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as err:
        raise ValueError(f"chat_template.jinja cannot be read: {err}") from None
    if isinstance(source, list):  # the file has several templates, each with a name
        named = {item.get("name"): item.get("template") for item in source}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    variables: dict[str, Any] = {}
    for name in _NAMED_TOKENS:
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            variables[name] = token
    return ChatTemplate(source, variables)
