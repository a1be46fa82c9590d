"""Capabilities that are off by default, one folder each. `router.core.addons` finds them by name.

Nothing outside a folder here imports it by a statement, so a folder can be removed: the router then
starts without the capability, and a configuration that needs it gets one line that says so.
"""
