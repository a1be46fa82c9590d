"""The settings that labels and annotations state."""

import re
from typing import Any

import pytest

from router.addons.kubernetes.objects import READERS, Metadata, Stated, stated
from tests.places import ROOT


def of(labels: dict[str, str] | None = None, **annotations: str) -> Stated:
    marks = {f"hedgerow.dev/{name}": text for name, text in annotations.items()}
    return stated(Metadata(labels=labels, annotations=marks))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("models", "m", ("m",)),
        ("models", " org/a , b,,b", ("org/a", "b")),
        ("models", "*", ("*",)),
        ("engine", "vllm", "vllm"),
        ("zone", "eu-1a", "eu-1a"),
        ("region", "eu-1", "eu-1"),
        ("type", "h100", "h100"),
        ("spot", "true", True),
        ("spot", "false", False),
    ],
)
def test_a_setting_is_read(name: str, text: str, value: Any) -> None:
    assert of(**{name: text}) == Stated({name: value})
    assert of({f"hedgerow.dev/{name}": text}) == Stated({name: value})


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("models", " , ", "' , ' names no model"),
        ("engine", "vlmm", "'vlmm' must be one of "),
        ("port", "0", "'0' must be 1 to 65535, or the name of a port"),
        ("port", "65536", "'65536' must be 1 to 65535"),
        ("port", "9" * 5000, "must be 1 to 65535"),
        ("port", "", "'' must be 1 to 65535"),
        ("region", "e u", "'e u' is invalid: the name of a region"),
        ("zone", "a\nb", "'a\\nb' must be at most 200 printable characters"),
        ("type", "x" * 201, "must be at most 200 printable characters"),
        ("spot", "yes", "'yes' must be true or false"),
    ],
)
def test_an_invalid_value_is_named_and_not_used(name: str, text: str, problem: str) -> None:
    found = of(**{name: text})
    assert (found.settings, found.port) == ({}, "")
    assert found.problem.startswith(f"hedgerow.dev/{name}: ")
    assert problem in found.problem
    assert len(found.problem) < 400


def test_an_annotation_counts_before_a_label_and_both_before_the_node() -> None:
    node = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    assert of(node) == Stated({"zone": "z", "region": "r"})
    assert of({**node, "hedgerow.dev/zone": "label"}).settings["zone"] == "label"
    assert of({**node, "hedgerow.dev/zone": "label"}, zone="mark").settings["zone"] == "mark"


def test_the_region_of_the_source_counts_before_that_of_the_pod() -> None:
    node = {"topology.kubernetes.io/region": "eu-west-1"}
    assert stated(Metadata(labels=node), "eu") == Stated({})
    marks = {"hedgerow.dev/region": "eu"}
    for where in ({"labels": marks}, {"annotations": marks}):
        assert stated(Metadata(**where), "eu") == Stated({})
        unused = "hedgerow.dev/region: 'eu' is not used: the region of the source is 'us'"
        assert stated(Metadata(**where), "us") == Stated({}, unused=unused)


def test_the_guide_to_discovery_has_every_annotation() -> None:
    text = (ROOT / "deploy" / "discovery.md").read_text()
    named = re.findall(r"^\| `hedgerow.dev/(\w+)`", text, flags=re.MULTILINE)
    assert named == list(READERS)
