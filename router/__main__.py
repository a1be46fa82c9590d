"""`python -m router` is the command `hedgerow`."""

from router.cli import main

raise SystemExit(main())
