"""Readers that turn files into traffic: public request traces, and Hedgerow's own access log.

Read the modules in this order:

- `trace` opens a file of any format as `Traffic`. `lines` reads the lines of the file. `format` has
  the interface that each format implements.
- `mooncake`, `azure`, `hedgerow`: one module per format, with shared code in `columns`, `blocks`,
  `order` and `spread`.
- `sessions`, `closed_loop`: replay a log so that a session's next request waits for the previous
  answer.
- `facts`, `reuse`: compute statistics of the traffic, without a simulation.

Must never: hold a whole file in memory, or read the text of a prompt.
"""

from router.lab.traces.closed_loop import ClosedLoop
from router.lab.traces.facts import TraceFacts, describe
from router.lab.traces.reuse import Reuse, reuse_bound
from router.lab.traces.trace import FORMATS, Trace, open_trace

__all__ = [
    "FORMATS",
    "ClosedLoop",
    "Reuse",
    "Trace",
    "TraceFacts",
    "describe",
    "open_trace",
    "reuse_bound",
]
