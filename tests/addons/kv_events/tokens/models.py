"""Real tokenizers of the common kinds, built during the test."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "You are a helpful assistant. Answer in one sentence and say where you know it from.",
    "the quick brown fox jumps over the lazy dog, and the dog does not mind",
    "def main():\n    print('hello')\n    return 0\n",
    "user assistant system tool \n\n\n   spaces    and\ttabs 0123456789 äöü ß € 漢字",
] * 4

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(kind: str) -> Tokenizer:
    """`byte_level` (GPT, Qwen, Llama 3), `metaspace` (first word only) or `prepend` (Llama 2)."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>"))
    alphabet: list[str] = []
    if kind == "byte_level":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    elif kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    else:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    tokenizer.train_from_iterator(
        CORPUS, BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    # The token includes the space on its left, so a text must not be cut before the token.
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<|im_start|>x", lstrip=True, normalized=False)])
    return tokenizer


def save(folder: Path, kind: str = "byte_level", template: Any = CHATML, **config: Any) -> Path:
    """A folder in the format of a model's repository."""
    folder.mkdir(parents=True, exist_ok=True)
    build(kind).save(str(folder / "tokenizer.json"))
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", **config}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def ids(packed: bytes | None) -> list[int]:
    assert packed is not None
    return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]


def chat(*texts: str) -> list[dict[str, Any]]:
    """Messages with these texts, user and assistant alternating after a system prompt."""
    roles = ["system", *["user", "assistant"] * len(texts)]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()
