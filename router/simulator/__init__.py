"""A simulated fleet on a virtual clock: the router's own decisions over engine cores, no sockets.

Read the modules in this order: `traffic` (the requests), `scenario` (the fleet and its routers),
`simulation` (the event loop), `outcome` (the result of each request). The package `router.traces`
reads traffic from files; `router.replay` prints reports.
"""
