"""`python -m tests.clients.openai_suite FOLDER [WORDS]`: run the SDK's own tests, direct and
routed.

FOLDER keeps the downloads: the SDK's source, a virtual environment for its tests, and the mock
server (Prism, an npm package). WORDS select tests like pytest's `-k`; without them all run. Goals:
at least `STRAIGHT` of the tests pass directly against the mock, and each of those also passes
through the router. The report is printed and written to FOLDER/report.txt; the exit status is 1 if
a goal is missed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from router.lab.overhead.processes import free_port, start, stop, wait_for

STRAIGHT = 0.9
PRISM = "@stoplight/prism-cli@5"
# What the SDK's tests import besides the SDK itself.
NEEDED = [
    *("pytest>=9", "pytest-asyncio>=1.4", "pytest-xdist>=3.6", "rich>=13", "inline-snapshot>=0.28"),
    *("dirty-equals", "time-machine", "nest_asyncio", "trio", "respx", "Pillow", "httpx"),
]
START_S = 60.0
DOCUMENT = Path(__file__).parent / "document.py"


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    words = sys.argv[2] if len(sys.argv) > 2 else ""
    folder.mkdir(parents=True, exist_ok=True)
    sdk = version("openai")
    source = fetched(folder, sdk)
    python = environment(folder, sdk)
    document = folder / "openapi.json"
    with document.open("w") as out:
        subprocess.run([python, DOCUMENT], stdout=out, check=True)
    mock_port, port = free_port(), free_port()
    with prism(folder, document, mock_port):
        straight = suite(python, source, mock_port, folder / "straight.xml", words)
        with router(folder, mock_port, port):
            routed = suite(python, source, port, folder / "routed.xml", words)
    text, is_met = report(sdk, straight, routed)
    (folder / "report.txt").write_text(text + "\n")
    print(text)
    return 0 if is_met else 1


# -- what is needed --------------------------------------------------------------------------------


def fetched(folder: Path, sdk: str) -> Path:
    """Download the SDK's source with its tests."""
    source = folder / f"openai-{sdk}"
    if not source.exists():
        get = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*get, "--no-binary", "openai", f"openai=={sdk}"], check=True)
        with tarfile.open(folder / f"openai-{sdk}.tar.gz") as archive:
            # The filter exists from CPython 3.11.4 on.
            safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, **safe)
        shutil.rmtree(source / "src")  # so that the installed package is tested
    return source


def environment(folder: Path, sdk: str) -> str:
    """A Python interpreter with the SDK and the packages of its tests."""
    venv = folder / "venv"
    python = str(venv / "bin" / "python")
    if not (venv / f".{sdk}").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, f"openai[aiohttp]=={sdk}", *NEEDED], check=True)
        (venv / f".{sdk}").touch()
    return python


@contextmanager
def prism(folder: Path, document: Path, port: int) -> Iterator[None]:
    """Run the mock server. It answers each path of the document with an example of its type."""
    program = folder / "node_modules" / ".bin" / "prism"
    if not program.exists():
        install = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder]
        subprocess.run([*install, PRISM], check=True)
    mock = [str(program), "mock", str(document), "--port", str(port), "--host", "127.0.0.1"]
    url = f"http://127.0.0.1:{port}/v1/models"
    with running([*mock, "--verboseLevel=error"], folder / "prism.log", url):
        yield


@contextmanager
def router(folder: Path, mock_port: int, port: int) -> Iterator[None]:
    """Run the router as shipped, in front of the mock."""
    config = folder / "hedgerow.yaml"
    config.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f"admin: 127.0.0.1:{free_port()}\n"
        "access_log: {path: ''}\n"
        f"replicas: [{{url: 'http://127.0.0.1:{mock_port}'}}]\n"
    )
    serve = [sys.executable, "-m", "router", "serve", "--config", str(config)]
    with running(serve, folder / "hedgerow.log", f"http://127.0.0.1:{port}/v1/models"):
        yield


@contextmanager
def running(command: list[str], log: Path, url: str) -> Iterator[None]:
    """Run a program; the block begins when it answers at the URL."""
    process = start(command, log=log)
    try:
        wait_for(url, START_S)
        yield
    finally:
        stop(process)


# -- the tests ---------------------------------------------------------------------------------


def suite(python: str, source: Path, port: int, results: Path, words: str) -> dict[str, str]:
    """Run the SDK's API tests at a port; return each verdict: passed, failed or skipped."""
    results.unlink(missing_ok=True)
    chosen = ["-k", words] if words else []
    run = [python, "-m", "pytest", "tests/api_resources", *chosen, f"--junitxml={results}"]
    with results.with_suffix(".log").open("w") as log:
        subprocess.run(
            [*run, "-q", "-n", "2", "--tb=short", "--no-header", "-p", "no:cacheprovider"],
            cwd=source,
            env={**os.environ, "TEST_API_BASE_URL": f"http://127.0.0.1:{port}/v1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = {child.tag for child in case}
        verdict = "failed" if kinds & {"failure", "error"} else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = (
            "skipped" if "skipped" in kinds else verdict
        )
    return found


def report(sdk: str, straight: dict[str, str], routed: dict[str, str]) -> tuple[str, bool]:
    """The tests passed in each run, and whether the goals are met."""
    ran = [name for name, verdict in straight.items() if verdict != "skipped"]
    good = [name for name in ran if straight[name] == "passed"]
    lost = [name for name in good if routed.get(name) != "passed"]
    share = len(good) / len(ran) if ran else 0.0
    lines = [
        f"API tests of the openai SDK {sdk}, {datetime.now():%Y-%m-%d}",
        f"straight: {len(good)} of {len(ran)} passed, {share:.1%} (goal: {STRAIGHT:.0%})",
        f"through Hedgerow: {len(good) - len(lost)} of these {len(good)} passed (goal: all)",
        *(f"  lost: {name}" for name in lost[:50]),
    ]
    return "\n".join(lines), share >= STRAIGHT and not lost


if __name__ == "__main__":
    sys.exit(main())
