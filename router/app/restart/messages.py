"""The conversation between a router and the new process that it starts after SIGUSR2.

Both ends of a pair of sockets send messages, each as one line of JSON:

1. The old process sends `Begin`, and the new process prepares everything that can fail.
2. The new process sends `Prepared`, or `Failed` and ends. The old process then goes on as before.
3. The old process sends `Go`. Only then does the new process accept connections.
4. The new process sends `Serving`. The old process stops accepting, and drains.

The connection ends with the old process. If one of the processes does not understand a message,
because they are of different versions, the new process ends and the old process goes on.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from router.app.listeners import Listener
from router.config.model import Replica
from router.fleet.discovery.roster import Engine

# The environment variable with the descriptor of the new process's end of the connection.
VARIABLE: Final = "HEDGEROW_HANDOVER"
# Maximum size of a message in bytes; a replica that the admin API added takes some hundred bytes.
MESSAGE_BYTES: Final = 64 * 1024 * 1024

_UNKNOWN: Final = "a message that this version does not understand"


class Socket(msgspec.Struct, frozen=True):
    """A listening socket that the new process has inherited; see `listeners.Listener`."""

    name: str
    address: str
    fd: int


class Reclaimed(msgspec.Struct, frozen=True):
    """A replica whose machine is reclaimed in `seconds`. `sources`: who announced it."""

    seconds: float
    sources: tuple[str, ...]


class FleetState(msgspec.Struct, frozen=True):
    """What the configuration file does not say about the fleet."""

    added: tuple[Replica, ...] = ()  # The replicas that the admin API added.
    # The replicas of discovery that the operator removed.
    removed: tuple[Engine, ...] = ()
    sources: tuple[str, ...] = ()  # The sources of discovery that have answered.
    duties: dict[str, int] = {}  # The duty of each replica that is not in service, by ID.
    reclaims: dict[str, Reclaimed] = {}  # The replicas whose machines are reclaimed, by ID.
    addons: dict[str, msgspec.Raw] = {}  # What addons pass on (`Addon.state`), by name.

    def without(self, ids: Collection[str]) -> FleetState:
        """Return this state without the duties and the reclaims of some replicas."""
        duties = {name: duty for name, duty in self.duties.items() if name not in ids}
        reclaims = {name: each for name, each in self.reclaims.items() if name not in ids}
        return msgspec.structs.replace(self, duties=duties, reclaims=reclaims)


class Worker(msgspec.Struct, frozen=True):
    """Which of several workers the new process is (`app/workers`). Its parent starts it.

    The numbers are those of inherited descriptors.
    """

    slot: int  # from 0
    channel: int  # the worker's end of the connection to the parent
    door: int  # where it gets connections of clients from the other workers
    doors: tuple[int, ...]  # where each worker gets them, by slot
    shared: int  # memory of all workers (`workers/balance.py`)
    salt: str  # for hashes that workers tell each other
    is_first: bool  # No worker has served yet.
    emulated: tuple[Replica, ...] = ()  # the fleet of `--emulate`, which the parent runs

    @property
    def fds(self) -> tuple[int, ...]:
        return (self.channel, self.door, *self.doors, self.shared)


class Begin(msgspec.Struct, frozen=True):
    """`ready`: the IDs of the replicas to which the old process can send requests."""

    sockets: tuple[Socket, ...]
    fleet: FleetState
    ready: tuple[str, ...]
    worker: Worker | None = None  # None: the new process serves alone

    @property
    def fds(self) -> list[int]:
        """The descriptors that the new process inherits."""
        return [*(one.fd for one in self.sockets), *(self.worker.fds if self.worker else ())]


class Answer(msgspec.Struct, frozen=True, tag=True):
    """A message of the new process."""


class Prepared(Answer, frozen=True):
    """The new process can take over."""


class Failed(Answer, frozen=True):
    """The new process cannot take over, and ends. `why` is a text for people."""

    why: str


class Serving(Answer, frozen=True):
    """The new process accepts connections. `fds`: the inherited sockets that it uses."""

    fds: tuple[int, ...]


class Go(msgspec.Struct, frozen=True):
    """The new process may accept connections. `fleet` is the fleet's state at this time."""

    fleet: FleetState


def line(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def encoded_state(fleet: FleetState, ready: Collection[str]) -> bytes:
    """Return a message with the state of the fleet only."""
    return line(Begin((), fleet, tuple(ready)))


def read_answer(data: bytes) -> Prepared | Failed | Serving:
    """Raises ValueError."""
    found: Prepared | Failed | Serving = read(data, Prepared | Failed | Serving)
    return found


def read(data: bytes, kind: Any) -> Any:
    """Return a message of this type. Raises ValueError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as err:
        raise ValueError(f"{_UNKNOWN}: {err}") from None


def sockets_of(listeners: Iterable[Listener]) -> tuple[Socket, ...]:
    return tuple(Socket(one.name, one.address, one.fd) for one in listeners)


def listener_of(one: Socket) -> Listener:
    """Return the inherited socket. Raises OSError."""
    sock = socket.socket(fileno=one.fd)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return Listener(one.name, one.address, sock)
