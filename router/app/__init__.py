"""The whole router. Only this folder imports all others.

`Parts` builds everything from a `Config`. `App` is one router inside an event loop; it starts,
reloads, drains and stops. Tests use it directly. `serve` runs it as a process.
"""

from router.app.lifecycle import App
from router.app.process import serve

__all__ = ["App", "serve"]
