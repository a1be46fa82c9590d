"""A replica of the admin API is read and checked like a replica of the file."""

import pytest

from router.config.load import parse, parse_replica
from router.config.model import Config, Emulator, Replica
from router.core.errors import ConfigError

REPLICA = "replicas: [http://gpu-1:8000]\n"


def test_an_entry_alone_is_read_like_one_of_the_file() -> None:
    entry = {"url": "http://gpu-2:8000", "weight": 2}
    config = parse(REPLICA)
    found = parse_replica(entry, config)
    assert found == Replica(url="http://gpu-2:8000", id="gpu-2:8000", weight=2.0)
    assert parse_replica("http://gpu-2:8000", config).id == "gpu-2:8000"


def test_its_region_is_that_of_the_router_unless_it_states_one() -> None:
    config = parse(REPLICA + "region: eu")
    assert parse_replica("http://gpu-2:8000", config).region == "eu"
    found = parse_replica({"url": "http://gpu-2:8000", "region": "us", "zone": "a"}, config)
    assert (found.region, found.zone) == ("us", "a")


@pytest.mark.parametrize(
    ("entry", "problems"),
    [
        ({"url": "gpu-1:8000"}, ["url: 'gpu-1:8000' has no scheme; write http://gpu-1:8000"]),
        ({"url": "http://a", "wieght": 1}, ["wieght: unknown key; did you mean weight?"]),
        ({"url": "http://a", "weight": 0}, ["weight: must be above 0"]),
        ({"url": "http://a", "id": "a b"}, ["id: must be visible ASCII: "]),
        ({"url": "http://a", "id": "x" * 201}, ["id: must be visible ASCII: 1 to 200 "]),
        ({"url": "http://a", "id": "\u00e4"}, ["id: must be visible ASCII: "]),
        ({"url": "http://a", "id": "a\r\nb"}, ["id: must be visible ASCII: "]),
        # The client of an admin request would remove these segments from the path.
        *(
            ({"url": "http://a", "id": name}, ["id: must have no segment . or .., "])
            for name in ("..", ".", "../drain", "a/./b")
        ),
        ({"url": "http://a/b%20c"}, ["id: 'a:80/b%20c' is derived from url and cannot be used; "]),
        ({"url": "http://a/" + "b" * 300}, ["id: 'a:80/bbb"]),
        ({"url": "http://u:p@a"}, ["url: credentials do not belong in the URL; "]),
        ({"url": "file:///etc/passwd"}, ["url: the scheme 'file' is not supported; "]),
        ({"url": "gopher://a"}, ["url: the scheme 'gopher' is not supported; "]),
        ({"url": "http://[fe80::1%25eth0]:80"}, ["url: an IPv6 address with a zone "]),
        ({"url": "http://0x7f000001\r\nx"}, ["url: "]),
        ({"url": "http://a?x"}, ["url: a replica's URL must not have a query "]),
        ({"url": "http://a", "region": "e u"}, ["region: the name of a region is 1 to 64 letters"]),
        (
            {"url": "x", "credential": {"token_file": "/etc/shadow"}},
            ["credential: cannot be set over the admin API; set `pool` to a pool that has "],
        ),
        ({}, ["url: is missing"]),
        (7, ["must be a mapping, not a whole number"]),
        ({"url": "x", "weight": -1}, ["weight: must be above 0", "url: 'x' has no scheme"]),
        (
            {"url": "http://a", "kv_events": {"endpoint": "x"}},
            ["kv_events.endpoint: must be tcp://host:port"],
        ),
    ],
)
def test_its_problems_are_those_of_the_file(entry: object, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_replica(entry, parse(REPLICA))
    assert len(caught.value.problems) == len(problems)
    for found, begins in zip(caught.value.problems, problems, strict=True):
        assert found.startswith(begins)


def test_it_may_join_emulated_engines() -> None:
    found = parse_replica({"url": "http://a"}, Config(emulate=Emulator(count=1)))
    assert found.id == "a:80"
