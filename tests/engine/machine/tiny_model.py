"""A language model of two megabytes that generates random printable ASCII.

Run by the engine environment's own Python: `python tiny_model.py FOLDER` writes a tokenizer with a
chat template and a randomly initialised Llama. The vocabulary has one token per printable
character, without merges, so that generated text survives detokenising and tokenising again. A test
that compares texts sends `allowed_token_ids=ASCII_IDS`, because special tokens are invisible in a
text and would break the comparison.

The model has many thin layers in order to take time, about 10 ms per token. With two layers, at 500
tokens/s, the engine's core was faster than its own API server on two busy cores: /metrics answered
after seconds, and a disconnect was processed after the last token.

The tests import the constants from here, so no engine module is imported at module level.
"""

import sys
from pathlib import Path

SPECIAL_TOKENS = ("<unk>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>")
# ByteLevel writes the space as U+0120; every other printable ASCII byte represents itself.
CHARACTERS = (*(chr(code) for code in range(33, 127)), "\u0120")
ASCII_IDS = list(range(len(SPECIAL_TOKENS), len(SPECIAL_TOKENS) + len(CHARACTERS)))
MAX_POSITIONS = 8192

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}{{ message['content'] }}"
    "{% if not (loop.last and continue_final_message) %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=list(SPECIAL_TOKENS[3:]),
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def write_weights(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)  # two engines with the same model must give equal answers
    config = LlamaConfig(
        vocab_size=len(SPECIAL_TOKENS) + len(CHARACTERS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=24,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=SPECIAL_TOKENS.index("<s>"),
        eos_token_id=SPECIAL_TOKENS.index("</s>"),
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_tokenizer(target)
    write_weights(target)
