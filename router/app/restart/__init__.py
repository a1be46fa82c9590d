"""Restarts without a refused connection: the listening sockets outlive the process.

`activation` takes listening sockets from systemd, and `notify` reports to systemd. After SIGUSR2,
`handover` replaces this process: `successor` starts the new process and talks with it, and
`predecessor` is the new process's side of the conversation. `messages` defines the messages, and
`fleet_state` passes the state of the fleet.
"""
