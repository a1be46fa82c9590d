"""Create a tokenizer folder without a download: `python tokenizer.py FOLDER`.

The tokenizer is a byte-level BPE, trained on the text from which aiperf builds its prompts, so that
a token has about as many bytes as with a real model's tokenizer. The script runs in aiperf's
virtual environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

import aiperf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = Path(aiperf.__file__).parent / "dataset/generator/assets/shakespeare.txt"
SIZE = 32_000


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(CORPUS)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    fast.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
