"""Simulates a rolling restart with and without the warm-up of cold replicas, with equal traffic.

`roll` has the fleet, the restarts and the cases, `run` one simulation, `part` the table and the
goals.
"""
