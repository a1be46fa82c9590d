"""An engine core on a virtual clock, run to its end."""

from router.lab.emulator.core.engine_core import EngineCore, Request
from router.lab.emulator.core.timing import Timing

Log = list[tuple[float, int, str]]

# One second per step of any size: times in tests are step counts.
STEP = Timing(1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def turn(core: EngineCore[Request], until: float = float("inf")) -> Log:
    """All events up to and at `until`: (time, kind, request id)."""
    log: Log = []
    while (due := core.next_event(until)) is not None and due <= until:
        log += [(core.clock, kind, request.id) for kind, request in core.advance(due)]
    return log


def times(log: Log, kind: int) -> dict[str, float]:
    """Time of the last event of this kind for each request."""
    return {id: at for at, k, id in log if k == kind}
