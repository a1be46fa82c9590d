"""Turns a request body into jobs: the text to generate, its length, and the reason of its end.

An answer is completely determined before the engine begins its first step for it. Apart from the
assigned IDs, the result depends only on the arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from router.fleet.engines.common.registry import ENGINES
from router.lab.emulator.http import text
from router.lab.emulator.http.bodies import Body, Refusal
from router.lab.emulator.http.job import Job
from router.lab.emulator.settings import EngineSettings

_MOST_CHOICES = 128


class Preparation:
    """Creates the jobs of one engine."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._jobs = 0

    def check_model(self, model: str | None) -> str:
        """The name of the model that answers; by default the engine's first model.

        Raises Refusal (404) if the engine does not serve `model`.
        """
        models = (*self._settings.models, *self._settings.adapters)
        if model and model not in models and not self.adapter_of(model):
            message = f"The model `{model}` does not exist. Valid aliases: {', '.join(models)}."
            raise Refusal(404, message, "NotFoundError", "model")
        return model or models[0]

    def adapter_of(self, model: str) -> str:
        """The adapter that a request for a model uses; empty: none.

        SGLang's clients write `model:adapter`; an adapter's name alone means the engine's model.
        """
        settings = self._settings
        if ENGINES[settings.persona].names_adapters:
            base, _, model = model.rpartition(":")
            if base not in settings.models:
                return ""
        return model if model in settings.adapters else ""

    def check_length(self, prompt_tokens: int, output_tokens: int = 0) -> None:
        """Raises Refusal (400) if prompt and output together exceed `max_model_len` tokens."""
        limit = self._settings.max_model_len
        if prompt_tokens + max(output_tokens, 1) <= limit:
            return
        over = f"your prompt contains at least {prompt_tokens} input tokens"
        if prompt_tokens < limit:
            over = f"you requested {output_tokens} output tokens and {over}"
        else:
            over += ", which exceeds this limit even without any output tokens"
        message = (
            f"This model's maximum context length is {limit} tokens. However, {over}. "
            "Please reduce the length of the input prompt."
        )
        raise Refusal(400, message, "BadRequestError", "input_tokens")

    def generating(self, body: Body, prompt: bytes, rank: int) -> list[Job]:
        """The jobs of a request, one for each choice (`n`).

        `rank` is the priority for the engine core; a lower number is served earlier.
        """
        model = self.check_model(body.model)
        choices = 1 if body.n is None else body.n
        if not 1 <= choices <= _MOST_CHOICES:
            raise Refusal(400, f"n must be within 1 and {_MOST_CHOICES}", "BadRequestError", "n")
        limit = body.limit()
        if limit is not None and limit < 1:
            raise Refusal(400, "max_tokens must be at least 1", "BadRequestError", "max_tokens")
        prompt_tokens = len(prompt) // text.TOKEN_BYTES
        self.check_length(prompt_tokens, limit or 0)
        room = self._settings.max_model_len - prompt_tokens
        cap = room if limit is None else limit
        least = min(body.min_tokens or 0, cap)
        jobs = []
        for choice in range(choices):
            answer = text.answer(prompt, cap, least, bool(body.ignore_eos), choice)
            cut = _stopped(answer.output, body, least)
            reason = "stop" if answer.ended or cut.by is not None else "length"
            jobs.append(
                self._job(model, prompt, cut.output, cut.tokens, reason, rank, body, cut.by)
            )
        return jobs

    def pooling(self, body: Body, prompt: bytes, rank: int) -> Job:
        """A job that is only prefilled and generates no token."""
        model = self.check_model(body.model)
        self.check_length(len(prompt) // text.TOKEN_BYTES)
        return self._job(model, prompt, b"", 0, "stop", rank, body, None)

    def block_hashes(self, model: str, body: Body, tokens: bytes) -> list[int]:
        """The chained hashes of the text's full KV blocks. They differ between models and salts."""
        seed = f"{model}\0{body.cache_salt or ''}"
        return text.block_hashes(tokens, self._settings.block_size, seed)

    def _job(
        self,
        model: str,
        prompt: bytes,
        output: bytes,
        tokens: int,
        reason: str,
        rank: int,
        body: Body,
        stop: str | None,
    ) -> Job:
        settings = self._settings
        self._jobs += 1
        # If a stop string ends the output inside a token, the KV cache has the whole token.
        whole = prompt + text.pad(output)
        hashes = self.block_hashes(model, body, whole)
        job = Job(
            str(self._jobs),
            len(prompt) // text.TOKEN_BYTES,
            output,
            tokens,
            reason,
            hashes,
            rank,
            text.token_ids(whole) if settings.kv_events else (),
            body.cache_salt,
            stop,
        )
        job.adapter = self.adapter_of(model)
        return job


class _Cut(NamedTuple):
    output: bytes  # bytes of the answer that are sent
    tokens: int  # number of generated tokens
    by: str | None


def _stopped(output: bytes, body: Body, least: int) -> _Cut:
    """Cut the output at the first stop string that ends after `least` tokens.

    An answer without text still takes one token, the end token.
    """
    tokens = max(len(output) // text.TOKEN_BYTES, 1)
    found = None
    floor = least * text.TOKEN_BYTES
    for stop in body.stops():
        wanted = stop.encode("utf-8", "surrogatepass")
        at = output.find(wanted, max(0, floor - len(wanted) + 1))
        end = at + len(wanted)
        if at >= 0 and (found is None or end < found[1]):
            found = (at, end, stop)
    if found is None:
        return _Cut(output, tokens, None)
    at, end, stop = found
    kept = end if body.include_stop_str_in_output else at
    return _Cut(output[:kept], -(-end // text.TOKEN_BYTES), stop)
