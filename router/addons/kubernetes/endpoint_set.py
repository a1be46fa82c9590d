"""Keeps the objects of one source, and derives the replicas that they name. Pure.

An engine joins when it is ready. It leaves when no object names it any more, because another pod
may get its address. It also leaves when an object says that it is terminating, unless no other
engine would be left. If it is only no longer ready, it stays, because the router probes it itself
and knows sooner. If a new version of its object is invalid, it keeps its settings.

Must never: do I/O or read a clock; use a part of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from router.addons.kubernetes.endpoints import Candidate, of_pod, of_slice, renewed
from router.addons.kubernetes.objects import (
    ApiFailed,
    EndpointSlice,
    Event,
    Head,
    Invalid,
    Pod,
    Status,
    decoded,
)
from router.config.model import KubernetesReplicas
from router.fleet.discovery.roster import Found
from router.fleet.discovery.source import summary

_VERSION: Final = re.compile(r"[0-9]{1,20}\Z")  # etcd counts in 64 bits.
_SHOWN: Final = 200  # Maximum length of the server's text in the text of an error.

# The engines that have joined, by key, each with its last valid settings.
Joined = dict[str, Found]


class Objects:
    """The objects of a source. Each is stored as the candidates that it names."""

    def __init__(self, source: KubernetesReplicas) -> None:
        self.invalid: dict[str, str] = {}  # Why an object cannot be decoded, by `namespace/name`.
        self._source = source
        self._known: dict[str, list[Candidate]] = {}  # By `namespace/name`.

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[list[Candidate]]:
        return iter(self._known.values())

    def add(self, raw: msgspec.Raw, before: Objects) -> None:
        """Store one object of a list. Raises Invalid if it is not an object."""
        self.store(_name(raw), raw, before)

    def store(self, name: str, raw: msgspec.Raw, before: Objects) -> bool:
        """Store an object. Returns whether it differs from the version in `before`.

        If `raw` is invalid, the version in `before` is stored.
        """
        was_invalid = before.invalid.get(name)
        known = before._known.get(name)
        self.invalid.pop(name, None)
        try:
            if self._source.service:
                found = of_slice(decoded(EndpointSlice, raw), self._source)
            else:
                found = of_pod(decoded(Pod, raw), self._source)
        except Invalid as err:
            found = known or []
            self.invalid[name] = f"{name}: {err}"
        self._known[name] = found
        return found != known or was_invalid != self.invalid.get(name)

    def drop(self, name: str) -> None:
        self._known.pop(name, None)
        self.invalid.pop(name, None)


class EndpointSet:
    """The objects of one source, and the engines that have joined."""

    def __init__(self, source: KubernetesReplicas, joined: Joined) -> None:
        """`joined`: the engines that had joined before a reload."""
        self.version = ""  # The version from which a watch continues; "": a list is needed.
        self.problem = ""  # What is wrong with the present objects.
        self.joined: Joined = {key: renewed(found, source) for key, found in joined.items()}
        self.objects = Objects(source)
        self._source = source
        self._has_joined = bool(joined)  # Whether any engine has joined.

    def listed(self, objects: Objects, version: str) -> None:
        """Replace all objects by those of a whole list. Raises Invalid."""
        if not _VERSION.match(version):
            raise Invalid(f"a list of the version {version[:_SHOWN]!r}")
        self.objects = objects
        self.version = version

    def changed(self, line: bytes) -> bool:
        """Apply one event of the watch. Returns whether an engine may have changed.

        Raises ApiFailed for the report of an error, and Invalid, also for an event that is older
        than the one before.
        """
        event: Event = decoded(Event, line)
        if event.type == "ERROR":
            status: Status = decoded(Status, event.object)
            raise ApiFailed(f"{status.code} {status.message[:_SHOWN]}", status.code)
        self._advance(decoded(Head, event.object).metadata.resource_version)
        if event.type == "BOOKMARK":
            return False
        name = _name(event.object)
        if event.type == "DELETED":
            self.objects.drop(name)
            return True
        if event.type in ("ADDED", "MODIFIED"):
            return self.objects.store(name, event.object, self.objects)
        raise Invalid(f"an event of the type {event.type[:_SHOWN]!r}")

    def _advance(self, version: str) -> None:
        """Versions are decimal numbers that increase (KEP-5504)."""
        if not _VERSION.match(version) or int(version) < int(self.version):
            raise Invalid(f"an event of the version {version[:_SHOWN]!r} after {self.version}")
        self.version = version

    def found(self) -> list[Found]:
        """Return the replicas, in the order of their IDs, and set `problem`."""
        engines: dict[str, list[Candidate]] = {}
        for candidates in self.objects:
            for each in candidates:
                engines.setdefault(each.key, []).append(each)
        problems = [*self.objects.invalid.values()]
        before, self.joined = self.joined, {}
        for key, candidates in engines.items():
            # A termination cannot be revoked, so an object that says otherwise is out of date.
            if any(each.is_terminating for each in candidates):
                continue
            problems += [each.problem for each in candidates if each.problem]
            found = _chosen(candidates, before.get(key))
            if found is not None:
                self.joined[key] = found
        if not self.joined:
            # The last engines stay while an object names them.
            self.joined = {key: found for key, found in before.items() if key in engines}
        self._has_joined = self._has_joined or bool(self.joined)
        if engines and not self.joined:
            problems.append("no endpoint is ready")
        elif not self._has_joined:
            problems.append("there are no endpoints")  # The selector may be wrong.
        self.problem = summary(problems)
        return sorted(self.joined.values(), key=_id)


def _chosen(candidates: list[Candidate], before: Found | None) -> Found | None:
    """Return the address and the settings of one engine that are used; `None`: none are.

    `before`: what was used before; `None`: the engine has not joined.
    """
    if before is None and not any(each.is_ready for each in candidates):
        return None
    valid = [each.found for each in sorted(candidates, key=_is_ipv6) if each.found is not None]
    if before is not None:
        # The engine keeps its address while it has it, so that it does not move without need.
        same = [found for found in valid if found.replica.url == before.replica.url]
        valid = [*same, *valid, before]
    return valid[0] if valid else None


def _is_ipv6(candidate: Candidate) -> bool:
    return candidate.is_ipv6


def _id(found: Found) -> str:
    return found.replica.id


def _name(raw: msgspec.Raw) -> str:
    """Return `namespace/name` of an object. Raises Invalid."""
    metadata = decoded(Head, raw).metadata
    return f"{metadata.namespace}/{metadata.name}"
