"""Every test starts from the same place: enough open files, and no verdict by the wall clock."""

from __future__ import annotations

import resource

from hypothesis import HealthCheck, settings

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))

# A busy machine fails no example, and none that was slow to make.
settings.register_profile("hedgerow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hedgerow")
