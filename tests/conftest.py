"""Every test starts from the same place: enough open files for its sockets."""

from __future__ import annotations

import resource

_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))
