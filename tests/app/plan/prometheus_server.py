"""A Prometheus server of Debian's package, with TLS and a password, for tests of `hedgerow plan`.

It scrapes running routers, or serves a history that `backfill` has written before.
"""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from router.lab.plan.sources.prometheus_api import Fetch, basic, fetcher
from tests.places import CERT, KEY

PASSWORD: Final = "me:secret"
# The hash of this password by bcrypt, with the smallest cost.
_USERS: Final = {"me": "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"}
SCRAPE_S: Final = 0.5
SCRAPE: Final = f"{SCRAPE_S * 1000:g}ms"
_START_S: Final = 60.0  # time limit of a start: a tenth of a second on an idle machine

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian: apt install --no-install-recommends prometheus)",
)
# One series: its name with labels, and pairs of a time in seconds since 1970 and a value.
History = Mapping[str, Sequence[tuple[float, float]]]


class Server:
    """A running server. `flags`: the flags of `hedgerow plan` with its address and password."""

    def __init__(self, url: str, folder: Path) -> None:
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        self.url = url
        self.fetch: Fetch = fetcher(basic(PASSWORD), CERT)
        self.flags = ["--prometheus", url, "--basic-auth-file", str(password), "--ca-file", CERT]


def backfill(folder: Path, history: History) -> None:
    """Write a history for the server of this folder, which must not run yet."""
    lines: list[str] = []
    for series, samples in sorted(history.items()):
        name = series.partition("{")[0].removesuffix("_total")
        if f"# TYPE {name} unknown" not in lines:
            lines.append(f"# TYPE {name} unknown")
        lines += [f"{series} {value:.10g} {at:.3f}" for at, value in samples]
    text = folder / "history.txt"
    text.write_text("\n".join([*lines, "# EOF", ""]))
    done = subprocess.run(
        [
            *("promtool", "tsdb", "create-blocks-from", "openmetrics"),
            *("--max-block-duration=168h", "--quiet", str(text), str(folder / "data")),
        ],
        capture_output=True,
        text=True,
        timeout=_START_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(folder: Path, targets: Sequence[int] = ()) -> Iterator[Server]:
    """Start a server that scrapes these ports, and stop it at the end."""
    addresses = json.dumps([f"127.0.0.1:{port}" for port in targets])
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {SCRAPE}, scrape_timeout: {SCRAPE}}}\n"
        f"scrape_configs: [{{job_name: hedgerow, static_configs: [{{targets: {addresses}}}]}}]\n"
    )
    tls = {"cert_file": CERT, "key_file": KEY}
    web = {"tls_server_config": tls, "basic_auth_users": _USERS}
    (folder / "web.yml").write_text(json.dumps(web))
    child = subprocess.Popen(
        [
            *("prometheus", f"--config.file={folder / 'prometheus.yml'}"),
            f"--web.config.file={folder / 'web.yml'}",
            *("--web.listen-address=127.0.0.1:0", f"--storage.tsdb.path={folder / 'data'}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(_START_S, child.kill)
    timer.start()
    reader = threading.Thread()
    try:
        assert child.stderr is not None
        port, is_ready, said = "", False, []
        for line in child.stderr:  # the order of the two lines differs
            said.append(line)
            if found := re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', line):
                port = found[1]
            is_ready = is_ready or "Server is ready to receive web requests" in line
            if port and is_ready:
                break
        else:
            raise AssertionError("".join(said))
        timer.cancel()
        reader = threading.Thread(target=child.stderr.read)
        reader.start()
        yield Server(f"https://127.0.0.1:{port}", folder)
    finally:
        timer.cancel()
        child.kill()
        child.wait()
        if reader.ident is not None:
            reader.join()
        if child.stderr is not None:
            child.stderr.close()
