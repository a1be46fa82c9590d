"""Routers in front of two emulated engines, in their own processes, shared by the whole folder.

Real clients have their own loops and threads, so they talk to another process and not to this one.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from router.config.keys import KeyLine, hash_of, line_of

MODEL = "emulated"
KEY = "the-only-key-of-these-tests"
MIB = 1 << 20
LONGEST_BODY = 3 * MIB
CONTINUES = find_spec("router.addons.continuation") is not None


@dataclass(frozen=True)
class Served:
    """Address of the running router."""

    port: int
    admin_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    def continued(self) -> int:
        """Number of streams so far that another replica continued."""
        with urlopen(f"http://127.0.0.1:{self.admin_port}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(r'hedgerow_continuations_total\{outcome="continued"\} (\d+)', text)
        return int(found[1]) if found else 0


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    enabled = "true" if CONTINUES else "false"
    settings = f"continuation: {{enabled: {enabled}}}\nhealth: {{eject_after: 1000}}\n"
    with serving(tmp_path_factory.mktemp("clients"), settings) as router:
        yield router


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A router that requires `KEY`, and refuses bodies that are longer than `LONGEST_BODY`."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = f"{required_key(folder)}limits: {{body: {LONGEST_BODY}}}\n"
    with serving(folder, settings) as router:
        yield router


def required_key(folder: Path) -> str:
    """Settings with which the router requires `KEY`, whose hash is stored in the folder."""
    file = folder / "keys.jsonl"
    file.write_text(line_of(KeyLine(name="acme", hash=hash_of(KEY.encode()))) + "\n")
    return f"keys: {{file: '{file}', required: true}}\n"


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[Served]:
    """Run a router with these settings in front of two emulated engines."""
    config = folder / "config.yaml"
    config.write_text(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nemulate: {count: 2}\n"
        f"access_log: {{path: '{folder / 'access.log'}'}}\n"
        f"drain: {{lame_duck: 0, grace: 1}}\n{settings}"
    )
    command = [sys.executable, "-m", "router", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ) as child:
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            event = json.loads(line) if line.startswith(b"{") else {}
            if event.get("message") == "ready":
                break
        else:
            raise AssertionError(f"the router did not start: {said}")
        try:
            yield Served(
                int(event["listen"].rpartition(":")[2]), int(event["admin"].rpartition(":")[2])
            )
        finally:
            child.send_signal(signal.SIGTERM)
            child.stderr.read()
            status = child.wait(timeout=20)
        assert status == 0
