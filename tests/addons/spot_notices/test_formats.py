"""The formats in which clouds and files announce that a machine is reclaimed."""

import json
from datetime import UTC, datetime

import pytest

from router.addons.spot_notices.formats import PROVIDERS, Unreadable, read_file
from router.fleet.notice import UNSTATED, Notice

NOW = datetime(2026, 11, 20, 8, 20, 0, tzinfo=UTC).timestamp()


def read(provider: str, body: str, machine: str = "") -> Notice | None:
    return PROVIDERS[provider].read(body.encode(), NOW, machine)


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_aws_states_the_time(action: str) -> None:
    found = read("aws", json.dumps({"action": action, "time": "2026-11-20T08:22:00Z"}))
    assert found is not None
    assert found.seconds == 120.0
    # A time without a time zone is in UTC. A time that has passed counts as now.
    assert read("aws", '{"action": "stop", "time": "2026-11-20T08:22:00"}') == found._replace(
        key="stop 2026-11-20T08:22:00"
    )
    passed = read("aws", '{"action": "stop", "time": "2026-11-20T08:00:00Z"}')
    assert passed is not None and passed.seconds == 0.0


def test_gcp_states_no_time() -> None:
    assert read("gcp", "FALSE\n") is None
    assert read("gcp", "TRUE") == Notice("preempted", UNSTATED)


def events(*found: dict[str, object]) -> str:
    return json.dumps({"DocumentIncarnation": 2, "Events": found})


PREEMPT = {
    "EventId": "A-1",
    "EventType": "Preempt",
    "ResourceType": "VirtualMachine",
    "Resources": ["gpu_3"],
    "EventStatus": "Scheduled",
    "NotBefore": "Fri, 20 Nov 2026 08:20:45 GMT",
    "Description": "",
}


def test_azure_lists_events_of_several_machines() -> None:
    assert read("azure", events()) is None
    assert read("azure", events({**PREEMPT, "EventType": "Reboot"})) is None
    assert read("azure", events(PREEMPT)) == Notice("A-1", 45.0)
    assert read("azure", events(PREEMPT), "gpu_3") == Notice("A-1", 45.0)
    assert read("azure", events(PREEMPT), "gpu_4") is None
    # The event has begun.
    assert read("azure", events({**PREEMPT, "NotBefore": ""})) == Notice("A-1", 0.0)


@pytest.mark.parametrize(
    ("provider", "body"),
    [
        ("aws", "not found"),
        ("aws", "{}"),
        ("aws", '{"action": "stop", "time": "soon"}'),
        ("aws", '{"action": "stop", "time": 7}'),
        ("gcp", ""),
        ("gcp", "<html>"),
        ("azure", "[]"),
        ("azure", json.dumps({"Events": [{"EventType": "Preempt"}]})),
        ("azure", events({**PREEMPT, "NotBefore": "soon"})),
    ],
)
def test_an_answer_of_another_shape_is_no_notice(provider: str, body: str) -> None:
    with pytest.raises(Unreadable):
        read(provider, body)


def test_a_file_names_replicas_or_a_node_or_all() -> None:
    assert read_file(b"\n") == Notice("\n")
    named = read_file(b'{"replicas": ["a", "b"], "seconds": 30}')
    assert named[1:] == (30.0, ("a", "b"), "")
    assert read_file(b'{"node": "gpu-7"}')[1:] == (UNSTATED, (), "gpu-7")
    assert read_file(b'{"seconds": 0}')[1:] == (0.0, (), "")


@pytest.mark.parametrize(
    "raw",
    [
        *(b"a", b"[]", b"\xff", b'{"replica": "a"}', b'{"replicas": "a"}', b'{"seconds": -1}'),
        # A program that found no name must not drain every spot replica.
        *(b'{"replicas": []}', b'{"node": ""}', b'{"replicas": ["a"], "node": "n"}'),
    ],
)
def test_a_file_of_another_shape_is_no_notice(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        read_file(raw)
