"""Turns a script into simulated requests, with the tokens that engines would read over HTTP.

Prompts go through the emulator's own chat template and tokenizer. Each turn contains the answers
that the emulated engines give to the earlier turns. So a turn has the same tokens and the same
block hashes as at an emulated engine over HTTP.

Must never use a fact of a request that an emulated engine does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from bench.fleet.engines import BLOCK_TOKENS, MODEL
from bench.fleet.script import Conversation, Script, Turn
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import render
from router.lab.simulator.traffic import Arrival


class ScriptTraffic:
    """The requests of a script. Each later turn arrives after the answer to the previous turn."""

    def __init__(
        self, script: Script, name: str, block_tokens: int = BLOCK_TOKENS, model: str = MODEL
    ) -> None:
        self.name = name
        self.block_tokens = block_tokens
        self._script = script
        self._model = model
        self._most_turns = max((len(one.turns) for one in script.conversations), default=1)

    def __iter__(self) -> Iterator[Arrival]:
        for number, conversation in enumerate(self._script.conversations):
            if turns := self._turns(number, conversation):
                yield turns[0]

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """Return the conversation's next turn, due after the think time. Returns nothing if the
        script has ended by then.
        """
        assert isinstance(ended, ScriptedTurn)
        following = ended.following
        if following is None:
            return ()
        following.at = now + following.think_s
        return () if following.at >= self._script.until else (following,)

    def _turns(self, number: int, conversation: Conversation) -> list[ScriptedTurn]:
        messages = []
        if conversation.system:
            messages.append({"role": "system", "content": conversation.system})
        sizes: list[tuple[Turn, int]] = []
        whole = b""
        for turn in conversation.turns:
            messages.append({"role": "user", "content": turn.text})
            prompt = render(messages)
            answer = text.answer(prompt, turn.output_tokens, is_endless=True).output
            messages.append({"role": "assistant", "content": answer.decode()})
            sizes.append((turn, len(prompt) // text.TOKEN_BYTES))
            whole = prompt + text.pad(answer)
        # Each prompt begins with the previous prompt and answer. So the block hashes of every turn
        # are a prefix of the last turn's hashes.
        chain = tuple(text.block_hashes(whole, self.block_tokens, f"{self._model}\0"))
        turns = []
        for index, (turn, prompt_tokens) in enumerate(sizes):
            asked = prompt_tokens // self.block_tokens
            answered = (prompt_tokens + turn.output_tokens) // self.block_tokens
            name = number * self._most_turns + index
            blocks, answer_blocks = chain[:asked], chain[asked:answered]
            turns.append(
                ScriptedTurn(name, conversation.at, prompt_tokens, turn, blocks, answer_blocks)
            )
        for turn_before, turn_after in pairwise(turns):
            turn_before.following = turn_after
        return turns


class ScriptedTurn(Arrival):
    """One turn of a conversation as a simulated request, with a reference to the next turn."""

    __slots__ = ("following", "think_s")

    def __init__(
        self,
        number: int,
        at: float,
        prompt_tokens: int,
        turn: Turn,
        blocks: tuple[int, ...],
        answer_blocks: tuple[int, ...],
    ) -> None:
        super().__init__(
            number, at, prompt_tokens, turn.output_tokens, blocks, answer_blocks=answer_blocks
        )
        self.think_s = turn.think_s
        self.following: ScriptedTurn | None = None
