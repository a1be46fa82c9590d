"""The router, except that a new process waits for its replicas for half a second."""

from router.app.restart import predecessor
from router.cli import main

predecessor.READY_WAIT_S = 0.5  # type: ignore[misc]
raise SystemExit(main())
