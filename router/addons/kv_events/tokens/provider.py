"""Provides token IDs for requests, from a cache, a local tokenizer or a replica.

`ask` never blocks, never raises and needs no task of the caller. It answers at once from the cache,
or calls back when the IDs are ready or `tokens_wait_s` has passed. A late answer is still cached,
because the next request of the conversation needs it.

A question is one call of `ask`. Equal questions in progress are merged. At most JOBS different
questions are in progress; a further question gets None at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from router.addons.kv_events.chains import TokenChains, pack
from router.addons.kv_events.tokens.facts import Facts, prompt_of, text_of
from router.addons.kv_events.tokens.local import LocalTokenizer, PrefixCache
from router.addons.kv_events.tokens.remote import RemoteTokenizer, Target, request_body
from router.config.in_force import InForce
from router.core.errors import ConfigError

JOBS: Final = 64  # maximum number of questions in progress
_THREADS: Final = 2
# Maximum bytes of cached token IDs of whole prompts. Each tokenizer also caches beginnings of
# texts.
_CACHE_BYTES: Final = 32 * 1024 * 1024
_IDS_BYTES: Final = 64 * 1024  # maximum bytes of a list of token IDs to decode on the event loop

Done = Callable[[TokenChains | None], None]


class TokenCounters:
    """Counts how questions (calls of `ask`) were answered; totals since the start."""

    __slots__ = ("cached", "failed", "late", "local", "refused", "remote", "unknown")

    def __init__(self) -> None:
        self.cached = 0  # Number of questions that the cache answered at once.
        self.local = 0  # Number of questions that a local tokenizer answered.
        self.remote = 0  # Number of questions that a replica answered.
        # Number of questions that were answered with None, because their time limit passed.
        self.late = 0
        # Number of questions that were answered with None at once, because too many questions were
        # in progress.
        self.refused = 0
        # Number of questions that were answered with None at once, because no tokenizer or replica
        # was available, or because there was nothing to tokenize.
        self.unknown = 0
        # Number of questions that were answered with None, because the tokenizer or the replica
        # failed.
        self.failed = 0


class Question:
    """One call of `ask`.

    If `is_done` when `ask` returns, the answer is `chains` and there is no callback.
    """

    __slots__ = ("_done", "_job", "_lora", "_salt", "_timer", "chains", "is_done")

    def __init__(self, lora: str, salt: str, done: Done) -> None:
        self._lora = lora
        self._salt = salt
        self._done: Done | None = done
        self._job: _Job | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_done = False
        self.chains: TokenChains | None = None

    def cancel(self) -> None:
        """Cancel the question: its answer is no longer needed.

        May be called at any time, and repeatedly.
        """
        job = self._job
        self._finish()
        if job is not None:
            job.left_by(self)

    def _settle(self, tokens: bytes | None) -> None:
        if tokens is not None:
            self.chains = TokenChains(tokens, self._lora, self._salt)
        self._finish()

    def _finish(self) -> Done | None:
        """End the question; returns the callback, if there is one."""
        done, self._done = self._done, None
        self.is_done = True
        self._job = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return done

    def _answer(self, tokens: bytes | None) -> Done | None:
        done = self._done
        self._settle(tokens)
        return done


class _Job:
    """One computation of token IDs in progress, and the questions that wait for it."""

    __slots__ = ("is_remote", "name", "questions", "stop", "wanted")

    def __init__(self, name: bytes, *, is_remote: bool) -> None:
        self.name = name
        self.is_remote = is_remote  # A replica computes the token IDs.
        self.questions: list[Question] = []
        # True: the time limit of a question has passed, but a later request needs the result.
        self.wanted = False
        self.stop: Callable[[], object] = _nothing

    def left_by(self, question: Question) -> None:
        # The question is not in the list while `_finished` answers the questions of this job.
        if question in self.questions:
            self.questions.remove(question)
            if not self.questions and not self.wanted:
                self.stop()


def _nothing() -> None:
    pass


class TokenProvider:
    """Provides the token IDs of requests (`ask`).

    A change of the `prefix` settings needs a restart.
    """

    def __init__(
        self,
        in_force: InForce,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._prefix = prefix = in_force.config.prefix
        self._wait_s = prefix.tokens_wait_s
        self._on_error = on_error
        self._tokenizers: dict[str, LocalTokenizer] = {}
        self._remote = RemoteTokenizer(in_force)
        self._answers = PrefixCache(_CACHE_BYTES)
        self._jobs: dict[bytes, _Job] = {}
        self._tasks: set[asyncio.Task[bytes | None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counters = TokenCounters()

    def stop_remote(self) -> None:
        """Stop all queries to replicas, because a reload may have changed the allowed regions.

        Such a query may still wait for a connection. Its questions get `None`.
        """
        for job in self._jobs.values():
            if job.is_remote:
                job.stop()

    async def start(self) -> None:
        """Load the tokenizers. Raises ConfigError if a tokenizer is unusable."""
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokens")
        self._remote.start()
        problems: list[str] = []
        for model, path in self._prefix.tokenizers.items():
            try:
                self._tokenizers[model] = await self._loop.run_in_executor(
                    self._threads, LocalTokenizer, path
                )
            except ConfigError as err:
                problems.extend(err.problems)
            except (ValueError, OSError) as err:
                problems.append(f"prefix.tokenizers.{model}: {err}")
        if problems:
            await self.stop()
            raise ConfigError(sorted(set(problems)))

    async def stop(self) -> None:
        """Stop: all questions in progress are answered with None."""
        self._wait_s = 0.0
        for job in list(self._jobs.values()):
            self._finished(job, None)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._remote.stop()
        if self._threads is not None:
            threads, self._threads = self._threads, None
            await asyncio.to_thread(threads.shutdown, True, cancel_futures=True)

    @property
    def running(self) -> int:
        """Return the number of questions in progress: 0 after `stop`."""
        return len(self._jobs) + len(self._tasks)

    def ask(
        self,
        facts: Facts,
        done: Done,
        *,
        lora: str = "",
        salt: str = "",
        target: Target | None = None,
    ) -> Question:
        """Ask for the token IDs of a request. `done` is called later, exactly once, with chains or
        None.

        `done` is not called if the returned question is already done or is cancelled. `lora`: the
        adapter's name, if the requested model is one. `target`: a replica that may be queried (its
        engine must have `Engine.tokenize`).
        """
        question = Question(lora, salt, done)
        try:
            self._begin(question, facts, target)
        except Exception as err:
            self._on_error(err)
            question._settle(None)
        return question

    def _begin(self, question: Question, facts: Facts, target: Target | None) -> None:
        raw = text_of(facts)
        if raw is None or self._threads is None:
            self.counters.unknown += 1
            question._settle(None)
            return
        if facts.kind == "completions" and raw[:1] == b"[":
            ids = prompt_of(raw) if len(raw) <= _IDS_BYTES else None
            if isinstance(ids, list):
                question._settle(pack(ids))
                return
        name = facts.name()
        known = self._answers.get(name)
        if known is not None:
            self.counters.cached += 1
            question._settle(known)
            return
        job = self._jobs.get(name) or self._new_job(name, facts, target)
        if job is None:
            question._settle(None)
            return
        if not self._wait_s:
            # This request does not wait; the answer is cached for the next request.
            job.wanted = True
            self.counters.late += 1
            question._settle(None)
            return
        job.questions.append(question)
        question._job = job
        assert self._loop is not None
        question._timer = self._loop.call_later(self._wait_s, self._late, question)

    def _new_job(self, name: bytes, facts: Facts, target: Target | None) -> _Job | None:
        tokenizer = self._tokenizer(facts)
        body = None if tokenizer is not None or target is None else request_body(facts)
        if tokenizer is None and body is None:
            self.counters.unknown += 1
            return None
        if len(self._jobs) >= JOBS:
            self.counters.refused += 1
            return None
        job = self._jobs[name] = _Job(name, is_remote=tokenizer is None)
        if tokenizer is not None:
            self._ask_local(job, tokenizer, facts)
        else:
            assert body is not None and target is not None
            self._ask_remote(job, body, target)
        return job

    def _tokenizer(self, facts: Facts) -> LocalTokenizer | None:
        """Return the local tokenizer, if its result certainly equals the engine's.

        Returns None for a request with tools, because each engine rewrites tools in its own way
        before it renders its template.
        """
        if facts.tools is not None:
            return None
        tokenizer = self._tokenizers.get(facts.model or "")
        if facts.model is None and len(self._tokenizers) == 1:
            (tokenizer,) = self._tokenizers.values()
        if tokenizer is None or (facts.kind == "chat" and not tokenizer.has_template):
            return None
        return tokenizer

    def _ask_local(self, job: _Job, tokenizer: LocalTokenizer, facts: Facts) -> None:
        assert self._threads is not None and self._loop is not None
        loop = self._loop
        future = self._threads.submit(tokenizer.tokens, facts)

        def finished(future: Future[bytes | None]) -> None:
            try:
                loop.call_soon_threadsafe(self._local_finished, job, future)
            except RuntimeError:
                pass  # the event loop is closed, so no question waits for the result any more

        future.add_done_callback(finished)
        job.stop = future.cancel

    def _local_finished(self, job: _Job, future: Future[bytes | None]) -> None:
        tokens = None
        if not future.cancelled():
            try:
                tokens = future.result()
            # A chat template rejects a chat by raising an exception; the engine will report the
            # reason to the client.
            except Exception:
                tokens = None
            self._count(tokens, "local")
        self._finished(job, tokens)

    def _ask_remote(self, job: _Job, body: bytes, target: Target) -> None:
        task = asyncio.ensure_future(self._remote.tokens(body, target))

        # The job ends in a callback of the task, because a task that is cancelled before its first
        # step runs none of its own code.
        def finished(task: asyncio.Task[bytes | None]) -> None:
            self._tasks.discard(task)
            self._remote_finished(job, task)

        self._tasks.add(task)
        task.add_done_callback(finished)
        job.stop = task.cancel

    def _remote_finished(self, job: _Job, task: asyncio.Task[bytes | None]) -> None:
        tokens = None
        if not task.cancelled():
            try:
                tokens = task.result()
                self._count(tokens, "remote")
            except Exception as err:
                self._on_error(err)
        self._finished(job, tokens)

    def _count(self, tokens: bytes | None, way: str) -> None:
        way = "failed" if tokens is None else way
        setattr(self.counters, way, getattr(self.counters, way) + 1)

    def _finished(self, job: _Job, tokens: bytes | None) -> None:
        if self._jobs.get(job.name) is job:
            del self._jobs[job.name]
        if tokens is not None:
            self._answers.put(job.name, tokens)
        questions, job.questions = job.questions, []
        for question in questions:
            self._tell(question, tokens)

    def _late(self, question: Question) -> None:
        job = question._job
        if job is not None:
            job.wanted = True
            job.questions.remove(question)
        self.counters.late += 1
        self._tell(question, None)

    def _tell(self, question: Question, tokens: bytes | None) -> None:
        try:
            done = question._answer(tokens)
            if done is not None:
                done(question.chains)
        except Exception as err:
            self._on_error(err)
