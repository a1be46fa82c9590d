"""Routing benches in virtual time, for fleets that are too large or too expensive to start.

Reading order: `task` (one simulation), `search` (the highest rate at which a condition holds), then
the benches: `ladder` (a published experiment), `loads` (one workload from idle to overload),
`matrix` (every policy in every world of `worlds`) and `speed` (of the simulator itself). Code here
knows a policy only by its name: the decisions are made by the proxy's own code.
"""
