"""What routing is worth where a fleet is too large or too dear to start: benches in virtual time.

Reads in this order: `task` (one simulation), `search` (the highest rate that something holds at),
then the benches: `ladder` (a published experiment), `loads` (one workload from idle to overload),
`matrix` (every policy under everything in `worlds`) and `speed` (of the simulator itself). Nothing
here knows more of a policy than its name: what decides is what decides in the proxy.
"""
