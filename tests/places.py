"""Paths of the repository's files, for tests."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / "tests" / "data"
CERTIFICATES: Final = ROOT / "tests" / "config" / "data"
CERT: Final = str(CERTIFICATES / "one.pem")  # certificate for the name one.test
KEY: Final = str(CERTIFICATES / "one.key")
LOOPBACK_CERT: Final = str(CERTIFICATES / "loopback.pem")  # certificate for 127.0.0.1
LOOPBACK_KEY: Final = str(CERTIFICATES / "loopback.key")
