"""Files into traffic: public request traces, and Hedgerow's own access log.

Reads in this order: `trace` (a file as `Traffic`), `lines` (bytes), `format` (what a reader is),
one file per format (`mooncake`, `azure`, `burstgpt`, `bailian`, `hedgerow`) with what they share
(`columns`, `blocks`, `order`, `spread`), a log in a closed loop (`sessions`, `closed_loop`), and
what can be said of any traffic before it is simulated: `facts` and `reuse`. Must never: hold a
whole file, or see a prompt's text.
"""

from router.traces.closed_loop import ClosedLoop
from router.traces.facts import TraceFacts, describe
from router.traces.reuse import Reuse, reuse_bound
from router.traces.trace import FORMATS, Trace, open_trace

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
