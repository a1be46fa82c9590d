"""Objects come, change and go; which engines join and leave."""

from __future__ import annotations

import copy
import json
from random import Random

import msgspec
import pytest

from router.addons.kubernetes.endpoints import EndpointSet, Objects
from router.addons.kubernetes.objects import Invalid
from router.config.model import KubernetesReplicas
from tests.harness.api_server import Object, endpoint, pod_of, slice_of

SERVICE = KubernetesReplicas(service="vllm")
PODS = KubernetesReplicas(pods="app=vllm")


class Cluster:
    """A set that gets lists and events. Versions are counted."""

    def __init__(self, source: KubernetesReplicas = SERVICE) -> None:
        self.source = source
        self.set = EndpointSet(source, {})
        self.version = 1
        self.list()

    def list(self, *objects: Object) -> None:
        items = [msgspec.Raw(json.dumps(self.versioned(one)).encode()) for one in objects]
        listing = Objects(self.source)
        for raw in items:
            listing.add(raw, self.set.objects)
        self.set.listed(listing, str(self.version))

    def versioned(self, one: Object) -> Object:
        one = copy.deepcopy(one)
        meta = {"namespace": "default", "uid": f"uid-{one['metadata'].get('name')}"}
        one["metadata"] = {**meta, "resourceVersion": str(self.version), **one["metadata"]}
        return one

    def event(self, kind: str, one: Object) -> bool:
        self.version += 1
        line = {"type": kind, "object": self.versioned(one)}
        has_changed = self.set.changed(json.dumps(line).encode())
        self.set.found()
        return has_changed

    def put(self, one: Object) -> bool:
        return self.event("MODIFIED", one)

    @property
    def urls(self) -> dict[str, str]:
        return {each.replica.id: each.replica.url for each in self.set.found()}

    @property
    def pods(self) -> list[str]:
        return [name.removeprefix("default/").removesuffix(":8000") for name in self.urls]


def pair(ready: bool | None = True, terminating: bool = False) -> Object:
    b = endpoint("10.0.0.2", "b", ready=ready, terminating=terminating)
    return slice_of("s", endpoint("10.0.0.1", "a"), b)


def test_an_engine_joins_when_it_is_ready_and_stays_until_it_terminates() -> None:
    one = Cluster()
    assert one.pods == []
    assert one.set.problem == "there are no endpoints"
    one.put(pair(ready=False))
    assert one.pods == ["a"]
    one.put(pair())
    assert one.pods == ["a", "b"]
    one.put(pair(ready=False))
    assert one.pods == ["a", "b"], "the router probes it"
    one.list(pair(ready=False))
    assert one.pods == ["a", "b"], "also after a new list"
    one.put(pair(ready=True, terminating=True))
    assert one.pods == ["a"]
    one.put(pair(ready=False))
    assert one.pods == ["a"], "it has left, and joins again when it is ready"


def test_a_pod_of_the_same_name_is_another_engine() -> None:
    one = Cluster()
    one.put(slice_of("s", endpoint("10.0.0.1", "a")))
    after = endpoint("10.0.0.1", "a", ready=False)
    after["targetRef"]["uid"] = "another"
    one.put(slice_of("s", after))
    assert one.pods == []
    assert one.set.problem == "no endpoint is ready"


def test_one_endpoint_in_two_slices() -> None:
    one = Cluster()
    one.put(slice_of("s1", endpoint("10.0.0.1", "a")))
    one.put(slice_of("s2", endpoint("10.0.0.1", "a")))
    assert one.pods == ["a"]
    one.event("DELETED", slice_of("s1"))
    assert one.pods == ["a"]
    one.put(slice_of("s1", endpoint("10.0.0.1", "a", terminating=True)))
    assert one.pods == ["a"], "the last engine stays while an object names it"
    one.put(slice_of("s3", endpoint("10.0.0.2", "b", ready=False)))
    one.put(slice_of("s4", endpoint("10.0.0.2", "b", ready=True)))
    assert one.pods == ["b"], "one of two is out of date"
    for name in ("s3", "s4"):
        one.event("DELETED", slice_of(name))
    assert one.pods == [], "a termination cannot be revoked"


def test_the_last_engine_stays_while_its_object_exists() -> None:
    one = Cluster()
    one.put(slice_of("s", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b")))
    leaves = [endpoint(f"10.0.0.{n}", name, terminating=True) for n, name in ((1, "a"), (2, "b"))]
    one.put(slice_of("s", *leaves))
    assert one.pods == ["a", "b"]
    one.list(slice_of("s", leaves[0]))
    assert one.pods == ["a"]
    one.put(slice_of("s"))
    assert one.pods == []
    assert one.set.problem == "", "a source may be scaled to zero"


def test_two_families_are_one_engine() -> None:
    one = Cluster()
    one.put(slice_of("six", endpoint("fd00::1", "a"), endpoint("fd00::2", "b")))
    assert list(one.urls.values()) == ["http://[fd00::1]:8000", "http://[fd00::2]:8000"]
    one.put(slice_of("four", endpoint("10.0.0.1", "a"), endpoint("10.0.0.3", "c")))
    one.put(slice_of("six", *(endpoint(f"fd00::{n}", name) for n, name in ((1, "a"), (3, "c")))))
    assert one.urls == {
        "default/a:8000": "http://[fd00::1]:8000",  # It has joined with this address.
        "default/c:8000": "http://10.0.0.3:8000",
    }
    one.event("DELETED", slice_of("six"))
    assert list(one.urls.values()) == ["http://10.0.0.1:8000", "http://10.0.0.3:8000"]


def test_an_invalid_annotation_keeps_the_settings_of_an_engine_that_has_joined() -> None:
    one = Cluster(PODS)
    bad = {"hedgerow.dev/type": "h100", "hedgerow.dev/spot": "maybe"}
    one.put(pod_of("a", "10.0.0.1", annotations={"hedgerow.dev/type": "a100"}))
    one.put(pod_of("a", "10.0.0.1", annotations=bad))
    one.put(pod_of("b", "10.0.0.2", annotations=bad))
    one.put(pod_of("c", "10.0.0.3"))
    assert one.pods == ["a", "c"]
    assert [each.replica.type for each in one.set.found()] == ["a100", ""]
    assert one.set.problem == "; ".join(
        f"default/{name}: hedgerow.dev/spot: 'maybe' must be true or false" for name in "ab"
    )
    one.event("DELETED", pod_of("a", "10.0.0.1"))
    assert one.pods == ["c"]


def test_an_object_that_cannot_be_decoded_keeps_its_engines() -> None:
    one = Cluster()
    one.put(slice_of("s", endpoint("10.0.0.1", "a")))
    assert one.put({**slice_of("s"), "endpoints": 7})
    assert one.pods == ["a"]
    assert "default/s: Expected `array | null`, got `int`" in one.set.problem
    one.list({**slice_of("s"), "endpoints": 7}, slice_of("t", endpoint("10.0.0.2", "b")))
    assert one.pods == ["a", "b"]
    one.put(slice_of("s", endpoint("10.0.0.3", "c")))
    assert (one.pods, one.set.problem) == (["b", "c"], "")
    one.put({**slice_of("s"), "endpoints": 7})
    one.event("DELETED", slice_of("s"))
    assert (one.pods, one.set.problem) == (["b"], "")


def test_an_older_event_ends_the_watch() -> None:
    one = Cluster()
    one.put(slice_of("s", endpoint("10.0.0.1", "a")))
    one.version -= 2
    with pytest.raises(Invalid, match="an event of the version '1' after 2"):
        one.put(slice_of("s"))
    assert one.pods == ["a"]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": null}',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "9", "name": 1}}}',
        b'{"type": "RENAMED", "object": {"metadata": {"resourceVersion": "9"}}}',
        b"[" * 100_000,
        b'{"type": "ADDED", "object": ' + b'{"metadata":' * 100_000,
    ],
)
def test_a_line_that_is_no_event(line: bytes) -> None:
    one = Cluster()
    one.put(slice_of("s", endpoint("10.0.0.1", "a")))
    with pytest.raises(Invalid):
        one.set.changed(line)
    assert one.pods == ["a"]


def test_a_reload_keeps_the_engines_that_have_joined() -> None:
    one = Cluster()
    one.put(pair())
    one.put(pair(ready=False))
    assert one.pods == ["a", "b"]
    one.set = EndpointSet(SERVICE, one.set.joined)
    one.list(pair(ready=False))
    assert one.pods == ["a", "b"]


def test_events_lead_to_the_same_engines_as_a_list() -> None:
    """For any history in which no pod becomes not ready."""
    rng = Random(5)
    for _ in range(40):
        by_events, state = Cluster(), dict[str, Object]()
        for _ in range(30):
            name = rng.choice("stu")
            members = rng.sample(range(6), rng.randint(0, 4))
            made = slice_of(name, *(endpoint(f"10.0.0.{n}", f"p{n}") for n in members))
            if name in state and rng.random() < 0.3:
                by_events.event("DELETED", state.pop(name))
            else:
                by_events.event("MODIFIED" if name in state else "ADDED", made)
                state[name] = made
        by_list = Cluster()
        by_list.list(*state.values())
        assert by_events.urls == by_list.urls
