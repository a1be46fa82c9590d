"""Simulates a fleet with and without hedging, with equal traffic and equal stragglers.

The goals: `nodes` (fleet and traffic), `cases` (the stragglers), `figures` (one run), `promises`
(what is promised, and whether it holds). The sweeps: `world` (fleet and traffic), `policies`,
`frontier` and `harm`; `page` (their plots). `task` runs one simulation for both.
"""
