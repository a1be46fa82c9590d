"""The fleet on a virtual clock: the router's own decisions over engine cores, no sockets.

Reads in this order: `traffic` (what comes), `scenario` (to which fleet, through which routers),
`simulation` (the event loop), `outcome` (what became of each request), `report/` (what a person
looks at). `traces/` turns files into traffic.
"""
