"""The first message of the old process, if the new process does not understand it."""

import json
import socket

import pytest

from router.app.restart.messages import VARIABLE
from router.app.restart.predecessor import Predecessor
from router.core.build import VERSION
from router.core.errors import ConfigError

UNKNOWN = {"url": "http://127.0.0.1:9", "from_a_later_version": 1}


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        ({"sockets": [], "ready": []}, "missing required field `fleet`"),
        ({"sockets": [], "fleet": {"added": [UNKNOWN]}, "ready": []}, "from_a_later_version"),
    ],
)
def test_the_old_process_is_told_why(begin: object, why: str) -> None:
    old, new = socket.socketpair()
    with old:
        old.sendall(json.dumps(begin).encode() + b"\n")
        environ = {VARIABLE: str(new.detach())}
        with pytest.raises(ConfigError, match=why):
            Predecessor.find(environ)
        assert environ == {}
        (said,) = old.makefile("rb").readlines()
    answer = json.loads(said)
    assert answer["type"] == "Failed"
    assert f"version {VERSION}" in answer["why"]
    assert why in answer["why"]


def test_fields_of_a_later_version_are_ignored() -> None:
    old, new = socket.socketpair()
    with old:
        begin = {"sockets": [], "fleet": {"later": 1, "duties": {"a": 1}}, "ready": [], "later": 2}
        old.sendall(json.dumps(begin).encode() + b"\n")
        found = Predecessor.find({VARIABLE: str(new.detach())})
        assert found is not None
        assert found.fleet.duties == {"a": 1}
        found.close()
