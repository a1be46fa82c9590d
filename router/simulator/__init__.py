"""Simulates a fleet and its routers on a virtual clock, without sockets.

The simulated router makes its decisions with the same code as the proxy. The replicas are cores of
the engine emulator.

Read the modules in this order: `traffic` (the requests), `scenario` (the fleet and its routers),
`simulation` (the event loop), `outcome` (the result of each request). The package `router.traces`
reads traffic from files; `router.replay` prints reports.
"""
