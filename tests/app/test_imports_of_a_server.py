"""A serving process must not import modules that it does not use: each costs resident memory."""

import subprocess
import sys

# Each of these modules takes at least 0.5 MB of memory, and none is needed to serve a request.
UNUSED = ("dns", "importlib.metadata", "kubernetes", "pydantic", "sqlite3", "statistics", "zipfile")


def test_a_server_imports_nothing_that_it_does_not_use() -> None:
    program = (
        "import sys, router.cli, router.app.parts, router.app.process, aiohttp.web; "
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *UNUSED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
