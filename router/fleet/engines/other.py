"""An unknown engine. It may use vLLM's metric names, as many engines do, or report nothing."""

from __future__ import annotations

from typing import Final

from router.fleet.engines.common.base import TextSource
from router.fleet.engines.common.descriptor import Engine
from router.fleet.engines.vllm import NAMES, read

ENGINE: Final = Engine(
    "other",
    order=1000,
    sources=(TextSource("/metrics", NAMES, read),),
    control_below=("/debug/", "/metrics/"),
    is_recognised=False,
)
