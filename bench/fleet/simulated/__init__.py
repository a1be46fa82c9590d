"""Routing benches in virtual time, for fleets that are too large or too expensive to start.

Reading order: `task` (one simulation), `search` (the highest rate at which a condition holds), then
the benches: `ladder` (a published experiment), `loads` (one workload from low load to overload),
`matrix` (every policy in every scenario of `worlds`) and `speed` (the simulator's own speed). The
benches know a policy only by its name: the proxy's own code makes the decisions.
"""
