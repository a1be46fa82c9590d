"""Where the tests find files of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / "tests" / "data"
CERTIFICATES: Final = ROOT / "tests" / "config" / "data"
