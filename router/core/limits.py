"""The open-file limit of this process."""

from __future__ import annotations

import resource


def raise_open_files() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that is now in force.

    Every stream needs two file descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1_048_576
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass  # The operating system refuses a higher limit, so the present limit is returned.
    return soft
