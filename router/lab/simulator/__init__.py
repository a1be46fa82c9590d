"""Simulates a fleet and its routers on a virtual clock, without sockets.

The simulated router makes its decisions with the same code as the proxy: the drivers of requests
and of the queue, hedging, the choice of replicas, the fleet's table and health, tenants and names.
The replicas are cores of the engine emulator. Not simulated: connections, bodies, the bytes of
responses, early 200s, continuations, 429 and 5xx of engines, budgets of keys, and reloads.

Read the modules in this order: `traffic` (the requests), `scenario` (the fleet and its routers),
`simulation` (the event loop), `outcome` (the result of each request). The package
`router.lab.traces` reads traffic from files; `router.lab.replay` prints reports.
"""
