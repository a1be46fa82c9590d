"""Compares several routers on one fleet with one router, simulated and over HTTP.

Each router has its own queue, its own knowledge of prefixes and its own view of the engines. In
some setups the routers tell each other of their requests. The total traffic and the fleet are the
same for every number of routers. Reading order: `setups` (what is compared), `figures` (what is
counted), `found` (the table), and the parts `simulated`, `http` and `moderate`. The first two keep
the fleet full; `moderate` leaves it room, and has goals.
"""
