"""Simulates a fleet with and without hedging, with equal traffic and equal stragglers.

A straggler is an attempt that takes much longer than usual. Modules of the goals: `nodes` (fleet
and traffic), `cases` (the stragglers), `figures` (of one run) and `promises` (the verdicts).
Modules of the sweeps over options and loads: `world` (fleet and traffic), `policies`, `frontier`,
`harm` and `page` (plots). `task` runs one simulation for either.
"""
