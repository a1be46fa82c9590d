"""Common setup of all tests: enough open files, and no failure because of wall-clock time."""

from __future__ import annotations

import resource

from hypothesis import HealthCheck, settings

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))

# No example fails because the machine is busy or its generation was slow.
settings.register_profile("hedgerow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hedgerow")
