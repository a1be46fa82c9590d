"""The benchmark's client, which runs in its own process. Arguments: port, action, file, sizes."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

MiB: Final = 1024 * 1024
EDGE: Final = "edge"
CHAT: Final = "/v1/chat/completions"


async def run(port: int, *words: object) -> None:
    """Run one action in its own process. Raises RuntimeError if it fails."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.batches.client", str(port), *map(str, words)
    )
    if await child.wait():
        raise RuntimeError(f"the client failed at {' '.join(map(str, words))}")


class Client:
    def __init__(self, port: int) -> None:
        self._port = port

    def _ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if path.endswith("/content"):
            while answer.read(MiB):
                pass
            return None
        found = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {found}")
        return found

    def _send(self, note: Path, pieces: Iterable[bytes], size: int) -> None:
        """Upload a file to the router and write its ID to the local file `note`."""
        head = (
            f'--{EDGE}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{EDGE}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        ).encode()
        tail = f"\r\n--{EDGE}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            yield from pieces
            yield tail

        headers = {
            "Content-Type": f"multipart/form-data; boundary={EDGE}",
            "Content-Length": str(len(head) + size + len(tail)),
        }
        note.write_text(self._ask("POST", "/v1/files", body(), **headers)["id"])

    def upload(self, note: Path, size: int) -> None:
        piece = b"x" * MiB
        self._send(note, (piece for _ in range(size // MiB)), size // MiB * MiB)

    def download(self, note: Path) -> None:
        self._ask("GET", f"/v1/files/{note.read_text()}/content")

    def lines(self, note: Path, count: int, size: int, model: str = "") -> None:
        """Upload a batch file with `count` lines of `size` bytes, one request each.

        If `model` is empty, the last line repeats the `custom_id` of the first line. The router
        then has to read the whole file before it rejects it.
        """
        bare = len(_line(0, model, ""))
        names = [*range(count - 1), count - 1 if model else 0]
        found = (_line(n, model, "x" * (size - bare)) for n in names)
        self._send(note, found, size * count)

    def _batch(self, note: Path) -> dict[str, Any]:
        wanted = {
            "input_file_id": note.read_text(),
            "endpoint": CHAT,
            "completion_window": "24h",
        }
        batch = self._ask("POST", "/v1/batches", json.dumps(wanted))
        while batch["status"] not in ("completed", "failed"):
            time.sleep(0.1)
            batch = self._ask("GET", f"/v1/batches/{batch['id']}")
        return dict(batch)

    def validate(self, note: Path) -> None:
        batch = self._batch(note)
        assert batch["status"] == "failed", batch

    def work(self, note: Path, count: int, model: str) -> None:
        self.lines(note, count, 300, model)
        batch = self._batch(note)
        assert batch["request_counts"]["completed"] == count, batch


def _line(number: int, model: str, text: str) -> bytes:
    body = {
        "model": model,
        "max_tokens": 16,
        "messages": [{"role": "user", "content": text}],
    }
    line = {"custom_id": f"r{number:08}", "method": "POST", "url": CHAT, "body": body}
    return json.dumps(line).encode() + b"\n"


def main() -> None:
    port, what, note, *words = sys.argv[1:]
    numbers = [int(word) if word.isdecimal() else word for word in words]
    getattr(Client(int(port)), what)(Path(note), *numbers)


if __name__ == "__main__":
    main()
