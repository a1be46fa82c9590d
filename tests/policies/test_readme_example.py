"""policies/README.md: its policy works as it is written, and it names policies that exist."""

import re
import sys
from types import ModuleType

from policies.contract import ROUTING, make_policy, policy_names
from policies.hedging.contract import HEDGING
from policies.queueing.contract import QUEUEING
from tests.places import ROOT
from tests.policies.helpers import loaded, picks

README = (ROOT / "policies" / "README.md").read_text()


def test_the_example_chooses_the_fewest_waiting_requests() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    module = ModuleType("readme_example")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(code, module.__dict__)
        candidates = loaded(9, 0, 9)
        candidates[0].waiting, candidates[1].waiting, candidates[2].waiting = 1, 2, 1
        assert picks(make_policy("least_waiting"), candidates) == {"a", "c"}
    finally:
        del sys.modules[module.__name__]
        ROUTING.classes.pop("least_waiting", None)


def test_every_policy_is_named_and_every_named_one_exists() -> None:
    tables = "\n".join(line for line in README.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`(\w+)`", tables))
    # A test of the bench may have registered its rivals.
    rivals = {name for name, cls in ROUTING.classes.items() if cls.__module__.startswith("bench.")}
    known = {*policy_names(), *QUEUEING.names(), *HEDGING.names()} - rivals
    assert known - named == set()
    assert named - known == set()
