"""Creating policies by name: options are checked, and faulty third-party packages are isolated."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from policies import contract
from policies.contract import (
    C,
    Context,
    Pick,
    PolicyConfigError,
    RequestView,
    RoutingPolicy,
    make_policy,
    policy,
    policy_names,
)
from tests.policies.helpers import VIEW, context, fleet


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registrations of a test are removed after it."""
    policy_names()
    monkeypatch.setattr(contract.ROUTING, "classes", dict(contract.ROUTING.classes))
    yield


def register_sample() -> None:
    @policy("sample")
    @dataclass(slots=True)
    class Sample(RoutingPolicy):
        choices: int = 2
        share: float = 0.5
        tags: tuple[str, ...] = ()
        _seen: dict[str, int] = field(default_factory=dict, init=False)

        def __post_init__(self) -> None:
            if self.choices < 1:
                raise PolicyConfigError("sample.choices must be at least 1", "choices")
            if self.share > 1:
                raise ValueError("share above one")

        def pick(self, view: RequestView, candidates: Sequence[C], ctx: Context) -> Pick[C]:
            return Pick(candidates[self.choices % len(candidates)], "sample")


def test_options_are_converted_and_given() -> None:
    register_sample()
    made = make_policy("sample", {"choices": 1, "share": 1, "tags": ["a"]})
    assert (made.choices, made.share, made.tags) == (1, 1.0, ("a",))  # type: ignore[attr-defined]
    assert made.pick(VIEW, fleet(1, 1), context()).candidate.id == "b"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("least_inflight", "least_load"),
        ("kv_occupancy", "least_load"),
        ("leastconn", "least_load"),
        ("preble", "kv_aware"),
        ("linear_cost", "kv_aware"),
    ],
)
def test_a_policy_that_is_only_in_the_bench_has_a_successor(name: str, near: str) -> None:
    contract.ROUTING.classes.pop(name, None)  # the bench registers it
    with pytest.raises(PolicyConfigError, match=rf"unknown policy '{name}'; did you mean {near}\?"):
        make_policy(name)


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({"choice": 1}, "choice", r"unknown option of sample \(known: choices, share, tags\)"),
        ({"_seen": {}}, "_seen", "unknown option of sample"),
        ({"choices": "2"}, "choices", "Expected `int`, got `str`"),
        ({"tags": [1]}, "tags", "Expected `str`, got `int`"),
        ({"choices": 0}, "choices", "must be at least 1"),
        ({"share": 2.0}, None, "share above one"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    options: dict[str, object], option: str | None, message: str
) -> None:
    register_sample()
    with pytest.raises(PolicyConfigError, match=message) as caught:
        make_policy("sample", options)
    assert caught.value.option == option


def test_an_unknown_name_comes_with_the_known_ones() -> None:
    with pytest.raises(PolicyConfigError, match=r"did you mean p2c\? \(known: .*round_robin, "):
        make_policy("p3c")


def test_a_name_cannot_be_taken_twice() -> None:
    register_sample()
    with pytest.raises(ValueError, match="two routing policies are called 'sample'"):
        register_sample()


# Third parties, as real distributions on the path.


def install(folder: Path, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / f"{name}_module.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hedgerow.policies]\n{name} = {name}_module\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)


GOOD = """
from dataclasses import dataclass
from policies.contract import Pick, RoutingPolicy, policy

@policy("stranger")
@dataclass(slots=True)
class Stranger(RoutingPolicy):
    index: int = 0

    def pick(self, view, candidates, ctx):
        return Pick(candidates[self.index], "stranger")
"""


def test_a_third_party_registers_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "stranger", GOOD, monkeypatch)
    assert "stranger" in policy_names()
    made = make_policy("stranger", {"index": 1})
    assert made.pick(VIEW, fleet(1, 1), context()).candidate.id == "b"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no GPU today')", "cannot be imported .*no GPU today"),
        ("import sys; sys.exit(3)", "cannot be imported .*SystemExit"),
        ("def (", "cannot be imported .*SyntaxError"),
        ("value = 1", "registers no policy called 'broken'"),
        (
            GOOD.replace("stranger", "broken") + "\nraise RuntimeError('too late')",
            "cannot be imported .*too late",
        ),
        (
            GOOD.replace("stranger", "broken") + "\n    def __post_init__(self): 1 / 0",
            "broken: ZeroDivisionError",
        ),
    ],
)
def test_a_broken_third_party_policy_fails_only_if_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    install(tmp_path, "broken", source, monkeypatch)
    assert "broken" in policy_names()
    make_policy("p2c")
    for _ in range(2):  # the second request gets the same result
        with pytest.raises(PolicyConfigError, match=message):
            make_policy("broken")
    make_policy("p2c")
