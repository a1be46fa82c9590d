"""Reads Hedgerow's own access log as traffic.

- `trace` opens a log as `Traffic`. `hedgerow` reads its rows, `order` sorts them, `lines` reads the
  lines of the file, and `format` has the checks that all readers of logs share.
- `sessions`, `closed_loop`: replay a log so that a session's next request waits for the previous
  answer.
- `facts` computes statistics of the traffic, without a simulation.

Must never: hold a whole file in memory, or read the text of a prompt.
"""

from router.lab.traces.closed_loop import ClosedLoop
from router.lab.traces.trace import Trace, TraceFacts, describe

__all__ = ["ClosedLoop", "Trace", "TraceFacts", "describe"]
