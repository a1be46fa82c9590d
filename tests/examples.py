"""The number of examples of a property: at most 25, or all of them in the nightly run.

`EXAMPLES=all` selects all of them; `make test-nightly` and `make mutants` set it.
"""

import os
from collections.abc import Collection
from typing import Final

from hypothesis import HealthCheck, settings

ALL: Final = os.environ.get("EXAMPLES") == "all"
FEW: Final = 25


def examples(
    count: int, *, steps: int = 50, suppressed: Collection[HealthCheck] = (HealthCheck.too_slow,)
) -> settings:
    """Settings of a property that has `count` examples in the nightly run. They have no deadline:
    no example fails because the machine is busy.
    """
    return settings(
        max_examples=count if ALL else min(count, FEW),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=suppressed,
    )
