"""Every test starts from the same place: enough open files, and no verdict by the wall clock."""

from __future__ import annotations

import resource

from hypothesis import settings

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))

settings.register_profile("hedgerow", deadline=None)  # a busy machine fails no example
settings.load_profile("hedgerow")
