"""An unknown engine. It may use vLLM's metric names, as many engines do, or report nothing."""

from __future__ import annotations

from typing import Final

from router.fleet.engines.common.base import Marks, TextSource
from router.fleet.engines.common.descriptor import Blocked, Engine
from router.fleet.engines.vllm import NAMES, read

ENGINE: Final = Engine(
    "other",
    marks=Marks(order=1000),
    sources=(TextSource("/metrics", NAMES, read),),
    blocked=Blocked(
        control_below=(b"/debug/", b"/metrics/"),
        # `migration_request`: LMDeploy reads the prompt's cache from the address in this member.
        private_members=frozenset({"migration_request"}),
        # Some servers treat the members of `extra_body` like those of the body itself.
        member_nests=frozenset({"extra_body"}),
    ),
    is_recognised=False,
)
