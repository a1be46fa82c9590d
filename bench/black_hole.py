"""`python -m bench.black_hole`: how many requests fail if one replica answers errors at once.

In each cell, one of the replicas begins to answer an error to every request, while the others need
`WORK_S` seconds for an answer. Two bursts of `BURST` requests follow. A figure is the number of
failed requests of the first burst, and of the second one. Hedgerow runs with its own token for the
replicas, and with the keys of the clients. Beside it run the other routers, as the overhead bench
configures them.

Loads: `closed` is `AT_ONCE` clients that send one request after the other; `open` is `RATE`
requests per second; `chat` is the closed loop with long conversations, and the sick replica is the
one that served most of them.

Each router starts anew for each cell. LiteLLM starts slowly, so it starts once for each number of
replicas, and each cell waits until the sick replica of the cell before serves again.

Goal: no cell of Hedgerow is worse than the better one of the other routers, and at most
`FIRST_MOST` and `LATER_MOST` requests fail. The exit status is 1 if a goal is missed. `--runs FILE`
keeps the cells, so that a run can be continued.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.overhead import packaged
from bench.overhead.packaged import Litellm, SglangRouter
from router.lab.overhead import shapes
from router.lab.overhead.processes import Placement
from router.lab.overhead.routers import Hedgerow, Peer, PeerError, Site

WORK_S = 0.05
BURST = 60
AT_ONCE = 6
RATE = 50.0
FIRST_MOST, LATER_MOST = 6, 2
RETURN_S = 40.0  # How long a cell waits for the replica of the cell before.
KEY = "sk-bench"
ERROR = json.dumps({"error": {"message": "no", "type": "error", "param": None, "code": "no"}})
KINDS = (401, 404, 500, 400, 429, 200)  # The status; 200: only the body is an error.
SIZES = (2, 3, 6)
TEXT = "Tell me more about the hedge. " * 200


class HedgerowToken(Hedgerow):
    """Hedgerow with its own token for the replicas."""

    name = "hedgerow, own token"
    settings = "as shipped, upstream.token"

    def config(self) -> dict[str, object]:
        return {**super().config(), "upstream": {"token": KEY}}


class HedgerowKeys(Hedgerow):
    name = "hedgerow, clients' keys"
    settings = "as shipped"


ROUTERS: tuple[type[Peer], ...] = (HedgerowToken, HedgerowKeys, SglangRouter, Litellm)
OWN = 2  # The number of columns that are Hedgerow's.


class Engine:
    """A replica that answers in `WORK_S` seconds, or gives an error (`sick`) at once."""

    def __init__(self) -> None:
        self.sick = 0
        self.served = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        for path in ("/health", "/get_server_info", "/server_info", "/get_model_info"):
            app.router.add_get(path, self._empty)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _chat(self, request: web.Request) -> web.Response:
        await request.read()
        if self.sick:
            return web.Response(status=self.sick, text=ERROR, content_type="application/json")
        self.served += 1
        await asyncio.sleep(WORK_S)
        return web.Response(body=shapes.CHAT_BODY, content_type="application/json")

    async def _models(self, request: web.Request) -> web.Response:
        return web.Response(body=shapes.MODELS_BODY, content_type="application/json")

    async def _empty(self, request: web.Request) -> web.Response:
        return web.Response(text="{}", content_type="application/json")


class Load:
    """Sends bursts of requests to one router. All bodies differ."""

    def __init__(self, port: int, is_chat: bool) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._is_chat = is_chat
        self._sent = 0

    async def fails(self, session: aiohttp.ClientSession) -> bool:
        self._sent += 1
        text = f"Question {self._sent}"
        messages = [{"role": "user", "content": text}]
        if self._is_chat:
            messages.insert(0, {"role": "system", "content": f"{self._sent % AT_ONCE} {TEXT}"})
        body = {"model": shapes.MODEL, "messages": messages, "max_tokens": 16}
        try:
            async with session.post(self._url, json=body) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return True
        return answer.status != 200 or "choices" not in text

    async def closed(self, session: aiohttp.ClientSession, count: int = BURST) -> int:
        left = iter(range(count))

        async def client() -> int:
            return sum([await self.fails(session) for _ in left])

        return sum(await asyncio.gather(*[client() for _ in range(AT_ONCE)]))

    async def open(self, session: aiohttp.ClientSession) -> int:
        asks: list[asyncio.Task[bool]] = []
        for _ in range(BURST):
            asks.append(asyncio.create_task(self.fails(session)))
            await asyncio.sleep(1.0 / RATE)
        return sum([await ask for ask in asks])


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {KEY}"}, timeout=aiohttp.ClientTimeout(total=30)
    )


async def cell(peer: Peer, engines: list[Engine], kind: int, load_name: str) -> list[int]:
    """Measure one cell. Returns the failed requests of both bursts."""
    load = Load(peer.port, load_name == "chat")
    async with session() as client:
        for engine in engines:
            engine.served = 0
        await load.closed(client, 4 * AT_ONCE)
        sick = max(engines, key=lambda engine: engine.served)
        sick.sick = kind
        burst: Callable[[aiohttp.ClientSession], Awaitable[int]] = load.closed
        if load_name == "open":
            burst = load.open
        failed = [await burst(client), await burst(client)]
        sick.sick = 0
        return failed


async def returned(peer: Peer, engines: list[Engine]) -> None:
    """Wait until every replica serves again."""
    load, clock = Load(peer.port, False), asyncio.get_running_loop().time
    until = clock() + RETURN_S
    for engine in engines:
        engine.served = 0
    async with session() as client:
        while any(not engine.served for engine in engines) and clock() < until:
            await load.closed(client, AT_ONCE)


def key_of(peer: type[Peer], size: int, kind: int, load: str) -> str:
    return f"{peer.name} / {kind} / {load} / {size}"


async def measure(peer: type[Peer], sizes: list[int], runs: Path) -> None:
    """Measure the missing cells of one router, and append them to the file `runs`."""
    for size in sizes:
        known = kept(runs)
        wanted = [
            (kind, load)
            for kind in KINDS
            for load in ("closed", "open", "chat")
            if key_of(peer, size, kind, load) not in known
        ]
        engines = [Engine() for _ in range(size)]
        for engine in engines:
            await engine.start()
        router: Peer | None = None
        try:
            for kind, load in wanted:
                if router is None:
                    folder = Path(tempfile.mkdtemp(prefix="black-hole-"))
                    site = Site(folder, [engine.port for engine in engines], Placement())
                    router = peer(site)
                    # The engines answer in this event loop while the router starts.
                    await asyncio.to_thread(router.start)
                failed = await cell(router, engines, kind, load)
                key = key_of(peer, size, kind, load)
                print(f"{key}: {failed}", file=sys.stderr, flush=True)
                with runs.open("a") as file:
                    file.write(json.dumps([key, failed]) + "\n")
                if peer is Litellm:
                    await returned(router, engines)
                else:
                    router.stop()
                    router = None
        finally:
            if router is not None:
                router.stop()
            for engine in engines:
                await engine.stop()


def kept(runs: Path) -> dict[str, list[int]]:
    if not runs.exists():
        return {}
    return dict(json.loads(line) for line in runs.read_text().splitlines())


def report(runs: Path, sizes: list[int]) -> bool:
    """Print the table. Returns whether all goals are met."""
    known = kept(runs)
    print("| answer | load | replicas | " + " | ".join(peer.name for peer in ROUTERS) + " |")
    print("| :-- | :-- | --: |" + " --: |" * len(ROUTERS))
    missed = []
    for kind in KINDS:
        for load in ("closed", "open", "chat"):
            for size in sizes:
                row = [known.get(key_of(peer, size, kind, load)) for peer in ROUTERS]
                shown = [f"{found[0]} + {found[1]}" if found else "-" for found in row]
                answer = "200, error body" if kind == 200 else str(kind)
                print(f"| {answer} | {load} | {size} | " + " | ".join(shown) + " |")
                others = [sum(found) for found in row[OWN:] if found]
                for own in row[:OWN]:
                    if own is None:
                        continue
                    is_many = own[0] > FIRST_MOST or own[1] > LATER_MOST
                    if is_many or sum(own) > min(others, default=BURST):
                        missed.append(f"{answer} {load} {size}: {own[0]} + {own[1]}")
    print(f"\nGoals missed: {'; '.join(missed) or 'none'}")
    return not missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.black_hole", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install the other routers first")
    parser.add_argument("--runs", type=Path, default=Path("build/black-hole.jsonl"))
    parser.add_argument("--replicas", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--routers", nargs="+", default=[peer.name for peer in ROUTERS])
    arguments = parser.parse_args()
    if arguments.install:
        for package in (packaged.SGLANG_ROUTER, packaged.LITELLM):
            packaged.install(package)
    # Some routers also try other protocols than HTTP/1.1 at the engines.
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    arguments.runs.parent.mkdir(parents=True, exist_ok=True)
    for peer in ROUTERS:
        if peer.name in arguments.routers:
            try:
                asyncio.run(measure(peer, arguments.replicas, arguments.runs))
            except PeerError as error:
                print(f"{peer.name}: {error}", file=sys.stderr)
    return 0 if report(arguments.runs, arguments.replicas) else 1


if __name__ == "__main__":
    raise SystemExit(main())
