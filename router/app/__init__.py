"""The whole router. Only this folder imports all others.

`Parts` builds everything from a `Config`. `App` is one router inside an event loop, as tests and
`serve` use it: it starts, reloads, drains and stops. `serve` is the process around it.
"""

from router.app.lifecycle import App
from router.app.process import serve

__all__ = ["App", "serve"]
