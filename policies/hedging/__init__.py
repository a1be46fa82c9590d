"""The built-in hedging policies, one per file; importing this package registers them all."""

from policies.discovery import import_modules

import_modules(__name__, __path__)
