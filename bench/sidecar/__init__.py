"""Compares several routers on one fleet with one router, simulated and over HTTP.

The routers do not know each other: each has its own queue, its own knowledge of prefixes and its
own view of the engines. The total traffic and the fleet are the same for every number of routers.
Reading order: `setups` (what is compared), `figures` (what is counted), `found` (the table), and
the parts `simulated` and `http`.
"""
