"""Starts the router as systemd does, with listening sockets: sd_listen_fds(3).

    python -m tests.faults.restart.launch NAMES FD... serve ...

The descriptors become 3, 4, ...; NAMES are their names, with colons between them.
"""

import os
import sys

names, *rest = sys.argv[1:]
fds = [int(word) for word in rest[: len(names.split(":"))]]
for number, fd in enumerate(fds, 3):
    os.dup2(fd, number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": names}
os.execv(sys.executable, [sys.executable, "-m", "router", *rest[len(fds) :]])
