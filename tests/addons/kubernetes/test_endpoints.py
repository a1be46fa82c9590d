"""The engines that one EndpointSlice or one pod names."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import msgspec
import pytest

from router.addons.kubernetes.endpoints import (
    Candidate,
    EndpointSet,
    Objects,
    of_pod,
    of_slice,
    renewed,
)
from router.addons.kubernetes.objects import EndpointSlice, Invalid, Pod, decoded
from router.config.model import Credential, KubernetesReplicas, Replica
from tests.harness.api_server import Object, endpoint, pod_of, slice_of

SERVICE = KubernetesReplicas(service="vllm")
PODS = KubernetesReplicas(pods="app=vllm")


def in_slice(one: Object, source: KubernetesReplicas = SERVICE) -> list[Candidate]:
    one["metadata"].setdefault("namespace", "default")
    return of_slice(decoded(EndpointSlice, json.dumps(one).encode()), source)


def in_pod(one: Object, source: KubernetesReplicas = PODS) -> list[Candidate]:
    one["metadata"] = {"namespace": "default", "uid": "u1", **one["metadata"]}
    return of_pod(decoded(Pod, json.dumps(one).encode()), source)


def replica(candidates: list[Candidate]) -> Replica:
    (candidate,) = candidates
    assert candidate.found is not None, candidate.problem
    return candidate.found.replica


def problem(candidates: list[Candidate]) -> str:
    (candidate,) = candidates
    assert candidate.found is None
    return candidate.problem


def test_an_endpoint_of_a_pod() -> None:
    one = slice_of("s", endpoint("10.0.0.1", "vllm-0", nodeName="n", zone="z"))
    (found,) = in_slice(one)
    assert (found.key, found.is_ready, found.is_terminating) == ("uid-vllm-0", True, False)
    assert replica([found]) == Replica(
        id="default/vllm-0:8000", url="http://10.0.0.1:8000", node="n", zone="z"
    )


@pytest.mark.parametrize(
    ("conditions", "is_ready", "is_terminating"),
    [
        ({}, True, False),
        ({"ready": None, "serving": None, "terminating": None}, True, False),
        ({"ready": True}, True, False),
        ({"ready": False}, False, False),
        ({"ready": False, "serving": True, "terminating": True}, False, True),
        ({"ready": True, "terminating": True}, True, True),  # publishNotReadyAddresses
    ],
)
def test_conditions(conditions: Object, is_ready: bool, is_terminating: bool) -> None:
    one = {"addresses": ["10.0.0.1"], "conditions": conditions}
    (found,) = in_slice(slice_of("s", one))
    assert (found.is_ready, found.is_terminating) == (is_ready, is_terminating)


def test_a_slice_has_as_many_endpoints_as_the_api_allows() -> None:
    many = [endpoint(f"10.0.{n // 250}.{n % 250}") for n in range(1, 1002)]
    assert len(in_slice(slice_of("s", *many[1:]))) == 1000
    with pytest.raises(Invalid, match="has more than 1000 endpoints"):
        in_slice(slice_of("s", *many))


@pytest.mark.parametrize(
    ("port", "url"), [("", ""), (9000, ":9000"), ("9000", ":9000"), ("http", ":8000")]
)
def test_the_port_is_a_number_or_a_name(port: int | str, url: str) -> None:
    ports = [
        {"name": "metrics", "port": 9090, "protocol": "TCP"},
        {"name": "http", "port": 8000, "protocol": "TCP"},
        {"name": "http", "port": 8000, "protocol": "UDP"},
        {"name": "none", "port": None},
    ]
    one = {**slice_of("s", endpoint("10.0.0.1")), "ports": ports}
    source = KubernetesReplicas(service="vllm", port=port)
    if url:
        assert replica(in_slice(one, source)).url == f"http://10.0.0.1{url}"
    else:
        assert problem(in_slice(one, source)) == "10.0.0.1: has several ports: set port"
    lost = KubernetesReplicas(service="vllm", port="grpc")
    assert problem(in_slice(one, lost)) == "10.0.0.1: has no port named 'grpc'"


def test_an_annotation_names_the_port_of_a_pod() -> None:
    one = pod_of("a", "10.0.0.1", annotations={"hedgerow.dev/port": "admin"})
    one["spec"]["containers"].append({"ports": [{"name": "admin", "containerPort": 7000}]})
    assert replica(in_pod(one, KubernetesReplicas(pods="a", port=1))).url == "http://10.0.0.1:7000"


def test_a_pod_with_two_families_has_two_candidates_of_one_key() -> None:
    found = in_pod(pod_of("a", "fd00::1", "10.0.0.1"))
    assert {each.key for each in found} == {"u1"}
    assert [replica([each]).url for each in found] == [
        "http://[fd00::1]:8000",
        "http://10.0.0.1:8000",
    ]
    assert [each.is_ipv6 for each in found] == [True, False]


def test_a_pod_without_an_address_and_one_with_the_old_field() -> None:
    assert in_pod(pod_of("a")) == []
    one = pod_of("a", "10.0.0.1")
    del one["status"]["podIPs"]
    assert replica(in_pod(one)).url == "http://10.0.0.1:8000"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_gone(phase: str) -> None:
    one = pod_of("a", "10.0.0.1")
    one["status"]["phase"] = phase
    assert in_pod(one) == []


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("gpu.example", "does not appear to be an IPv4 or IPv6 address"),
        ("0.0.0.0", "0.0.0.0 is not the address of an engine"),
        ("ff02::1", "ff02::1 is not the address of an engine"),
        ("fe80::1%eth0", "an IPv6 address with a zone is not supported"),
        ("10.0.0.1/x", "does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_an_address_that_no_engine_has(address: str, text: str) -> None:
    assert text in problem(in_slice(slice_of("s", endpoint(address, "a"))))


def test_settings_of_the_source_apply_unless_the_pod_states_them() -> None:
    secret = Credential(token="s")
    source = KubernetesReplicas(
        pods="a", models=("m",), zone="z", weight=2.0, pool="p", credential=secret, engine="sglang"
    )
    marks = {"hedgerow.dev/models": "n", "hedgerow.dev/pool": "other"}
    one = pod_of("a", "10.0.0.1", annotations=marks)
    (found,) = in_pod(one, source)
    made = replica([found])
    assert (made.models, made.zone, made.weight, made.engine) == (("n",), "z", 2.0, "sglang")
    assert (made.pool, made.credential) == ("p", secret)
    # A reload changes what the pod does not state.
    after = KubernetesReplicas(pods="a", models=("x",), zone="y", scheme="https")
    assert found.found is not None
    again = renewed(found.found, after).replica
    assert (again.models, again.zone, again.weight, again.pool) == (("n",), "y", 1.0, "")
    assert (again.id, again.url, again.node) == (made.id, "https://10.0.0.1:8000", "n1")


@pytest.mark.parametrize(
    "change",
    [
        {"endpoints": "many"},
        {"endpoints": [{"addresses": "10.0.0.1"}]},
        {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": "yes"}}]},
        {"ports": [{"port": "8000"}]},
        {"metadata": {"labels": {"a": 1}}},
    ],
)
def test_a_wrong_type_makes_the_object_invalid(change: Any) -> None:
    with pytest.raises(Invalid):
        decoded(EndpointSlice, json.dumps({**slice_of("s"), **change}).encode())


def test_a_slice_without_endpoints_or_ports() -> None:
    assert in_slice({**slice_of("s"), "endpoints": None}) == []
    assert in_slice(slice_of("s", {"addresses": []})) == []
    every = {**slice_of("s", endpoint("10.0.0.1")), "ports": None}
    assert problem(in_slice(every)) == "10.0.0.1: has no port: set port"
    assert replica(in_slice(every, KubernetesReplicas(service="v", port=80))).url.endswith(":80")


@pytest.mark.parametrize("name", ["a b", "x" * 300, "../b", "ä"])
def test_a_name_that_is_no_id(name: str) -> None:
    assert "must" in problem(in_pod(pod_of(name, "10.0.0.1")))


def test_pods_of_two_clusters_have_different_ids() -> None:
    source = KubernetesReplicas(pods="a", kubeconfig="/k", context="eu")
    assert replica(in_pod(pod_of("a", "10.0.0.1"), source)).id == "eu/default/a:8000"


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
