"""An engine nobody recognised: it may speak vLLM's names, as many do, or it tells nothing."""

from __future__ import annotations

from router.fleet.engines.base import Engine, Marks, TextSource
from router.fleet.engines.vllm import NAMES, read

OTHER = Engine(name="other", marks=Marks(), sources=(TextSource("/metrics", NAMES, read),))
