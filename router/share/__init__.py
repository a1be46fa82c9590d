"""What the routers of one fleet tell each other.

Read the modules in this order: `messages` (what is told), `own` (what this router tells), `others`
(what it was told, kept as in `heard`), `order` (both for what waits), `limits_told` (both for the
limits of tenants).
"""
