"""Judges over HTTP, at moderate load, whether several routers that share act as one router.

Reading order: `traffic` (workloads and engines), `load` (which router gets a request), `task` (one
run), `judge` (ratios, goals and the table), `part` (the command).
"""
