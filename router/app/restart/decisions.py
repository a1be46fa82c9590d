"""Decides whether a restart may begin, and when the new process may take over. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable


def refusal(pid: int, successor: int, *, is_starting: bool, is_draining: bool) -> str:
    """Return why the process `pid` must not start a new process; "" if it may.

    `successor`: the process that has replaced this process; 0: none has.
    """
    if successor:
        return f"process {successor} has replaced this process; send the signal to it"
    if is_starting:
        return "a restart is in progress"
    if is_draining:
        return "the router drains"
    if pid == 1:
        return "this is process 1 of a container, which ends with this process"
    return ""


def awaited(
    ready_before: Iterable[str], configured: Iterable[str], ready_now: Iterable[str]
) -> frozenset[str]:
    """Return the replicas that a new process waits for before it takes over.

    These are the replicas to which the old process can send requests, and the new process not yet.
    A replica that is not in the new process's fleet is not awaited.
    """
    return (frozenset(ready_before) & frozenset(configured)) - frozenset(ready_now)


def unanswered(
    sources_before: Iterable[str], sources: Container[str], answering: Container[str]
) -> list[str]:
    """Return the sources of discovery that have answered the old process, and not yet the new one.

    `sources`: the sources of the new process; a source that it does not have is not awaited.
    `answering`: those of them that have answered.
    """
    return [name for name in sources_before if name in sources and name not in answering]


def may_take_over(ready_before: Iterable[str], ready_now: Iterable[str]) -> bool:
    """Return whether a new process that has waited long enough may take over.

    A process without a replica must not replace a process that serves requests.
    """
    return any(True for _ in ready_now) or not any(True for _ in ready_before)
