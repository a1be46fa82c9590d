"""The open-file limit is raised to its hard maximum, and the resulting limit is reported."""

from __future__ import annotations

import resource

from router.core.limits import raise_open_files


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = min(before[0], 512), before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        told = raise_open_files()
        assert told == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert told == hard or hard == resource.RLIM_INFINITY
        assert raise_open_files() == told
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
