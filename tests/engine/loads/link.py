"""Streams over the lightweight client of the benches, because the engines need the CPU cores."""

import asyncio
import json
from collections.abc import Callable

from bench.fleet.stream import Answer, Link
from tests.engine.loads import bodies
from tests.engine.loads.load import CHAT


async def opened(url: str, make: Callable[[], Link] = Link) -> Link:
    """A connection to the server of this URL. `make` creates its protocol."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    _, link = await asyncio.get_running_loop().create_connection(make, host, int(port))
    return link


def ask(link: Link, text: str, tokens: int, fields: str = "") -> tuple[Answer, asyncio.Event]:
    """Ask for a stream of so many tokens. `fields`: more lines of the request's head.

    Returns the answer, which fills while it arrives, and an event that is set at its end.
    """
    body = json.dumps({**bodies.chat(text, tokens), "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: engine\r\n{fields}"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ended = asyncio.Event()
    link.ask(head.encode() + body, lambda _: ended.set())
    return link.answer, ended
