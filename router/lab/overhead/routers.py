"""Starts a router as a process of its own, waits until it answers, and stops it."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from router.core.build import is_compiled
from router.lab.overhead import shapes
from router.lab.overhead.processes import Placement, free_port, start, stop


class PeerError(Exception):
    """This router cannot be measured on this machine; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Site:
    """The resources of a router: its own folder, the upstream ports, the CPUs."""

    folder: Path
    upstreams: Sequence[int]
    placement: Placement


class Peer:
    """A router that can be started in front of the raw replicas."""

    name: ClassVar[str]
    settings: ClassVar[str]
    ready_s: ClassVar[float] = 20.0
    # Factor on the length of the measured windows; above 1 for a very slow router.
    patience: ClassVar[float] = 1.0
    most_paced: ClassVar[int | None] = None  # maximum number of paced streams; None if unlimited
    tls = False

    def __init__(self, site: Site) -> None:
        self.site = site
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def version(self) -> str:
        """Return the router's version. Raises PeerError if the router is not installed."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Write the needed files into the site's folder and return the command line."""
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        self.port = free_port()
        self.process = start(
            self.command(),
            self.site.placement.router,
            self.site.folder / "output.log",
            self.env(),
            cwd=self.site.folder,
        )
        self._wait_ready()

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)

    def _wait_ready(self) -> None:
        """Wait until a whole JSON answer has arrived. Errors contain the router's last output."""
        assert self.process is not None
        until = time.monotonic() + self.ready_s
        last = "no answer"
        while time.monotonic() < until:
            if (code := self.process.poll()) is not None:
                raise PeerError(f"the router ended with {code} at its start: {self._last_words()}")
            try:
                last = self._one_request()
            except (OSError, http.client.HTTPException) as error:
                last = repr(error)
            if not last:
                return
            time.sleep(0.1)
        raise PeerError(
            f"the router was not ready after {self.ready_s:g} s: {last}; {self._last_words()}"
        )

    def _one_request(self) -> str:
        """Send a request. Returns "" if a whole answer arrived, else the start of the answer."""
        prompt = shapes.Prompt(f"127.0.0.1:{self.port}")
        if self.tls:
            context = unverified()
            link: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=20, context=context
            )
        else:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            head, _, body = prompt.next().partition(b"\r\n\r\n")
            lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
            link.request("POST", "/v1/chat/completions", body, dict(lines))
            answer = link.getresponse()
            text = answer.read()
        finally:
            link.close()
        if answer.status == 200 and shapes.ANSWER_MARK in text:
            return ""
        return f"{answer.status} {text[:200]!r}"

    def _last_words(self) -> str:
        try:
            text = (self.site.folder / "output.log").read_text(errors="replace").strip()
        except OSError:
            return ""
        return " | ".join(text.splitlines()[-4:])[-600:]

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.site.upstreams]


class Hedgerow(Peer):
    name = "hedgerow"
    settings = "as shipped: access log to a file, metrics, limits and timers on"

    def version(self) -> str:
        from importlib.metadata import version

        return version("hedgerow") + ("" if is_compiled() else " (not compiled)")

    def config(self) -> dict[str, object]:
        return {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{free_port()}",
            "replicas": [{"url": url} for url in self.urls()],
            "access_log": {"path": str(self.site.folder / "access.log")},
        }

    def command(self) -> list[str]:
        config = self.site.folder / "hedgerow.yaml"
        config.write_text(json.dumps(self.config()))  # JSON is also valid YAML
        return [sys.executable, "-m", "router", "serve", "--config", str(config)]


class Running:
    """Starts a router, and stops it when the `with` block ends, also on errors."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> Peer:
        try:
            self._peer.start()
        except BaseException:
            self._peer.stop()
            raise
        return self._peer

    def __exit__(self, *_: object) -> None:
        self._peer.stop()


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
