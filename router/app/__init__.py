"""Builds and runs a router. Only this folder imports all other folders.

`Parts` builds all parts of a router from a `Config`. `App` is one router inside an event loop; it
starts, reloads, drains and stops. Tests use `App` directly. `serve` runs an `App` as a process.
"""

from router.app.lifecycle import App
from router.app.process import serve

__all__ = ["App", "serve"]
