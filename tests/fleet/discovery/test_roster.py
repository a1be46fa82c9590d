"""Which replicas the sources add, in every conflict."""

import msgspec

from router.config.address import parse_replica_url
from router.config.model import Config, Pool, Replica
from router.fleet.discovery.roster import Engine, Found, Member, Roster, standby

CONFIG = Config()


def at(number: int, name: str = "") -> Found:
    url = f"http://10.0.0.{number}:8000"
    return Found(Replica(url=url, id=name or f"10.0.0.{number}:8000"))


def roster(most: int = 100) -> Roster:
    return Roster(("one", "two"), most)


def ids(roster: Roster, *others: Replica) -> list[str]:
    return list(roster.members(others, CONFIG))


def test_every_source_adds_its_replicas() -> None:
    found = roster()
    assert ids(found) == []
    found.answered("two", [at(2, "b")])
    found.answered("one", [at(1, "a")])
    assert found.members((), CONFIG) == {
        "a": Member(at(1, "a").replica, "one", 0),
        "b": Member(at(2, "b").replica, "two", 0),
    }
    found.answered("one", [at(3, "c")])
    assert ids(found) == ["c", "b"]
    assert found.sizes == {"one": 1, "two": 1}


def test_the_first_of_two_sources_counts() -> None:
    found = roster()
    found.answered("two", [at(1, "same-address"), at(2, "same-id"), at(3)])
    found.answered("one", [at(1, "first"), at(9, "same-id")])
    assert ids(found) == ["first", "same-id", "10.0.0.3:8000"]
    assert found.members((), CONFIG)["same-id"].replica.url == "http://10.0.0.9:8000"
    found.answered("one", [at(4)])
    assert ids(found) == ["10.0.0.4:8000", "same-address", "same-id", "10.0.0.3:8000"]


def test_the_configuration_and_the_admin_api_take_precedence() -> None:
    found = roster()
    found.answered("one", [at(1), at(2, "b"), at(3)])
    same_address = Replica(url="http://10.0.0.1:8000/", id="mine")
    same_id = Replica(url="http://10.0.0.7:8000", id="b")
    assert ids(found, same_address, same_id) == ["10.0.0.3:8000"]
    assert len(ids(found)) == 3


def test_a_replica_that_was_removed_stays_out_until_no_source_names_it() -> None:
    found = roster()
    found.answered("one", [at(1), at(2)])
    found.removed(at(1).replica)
    found.removed(at(9).replica)  # no source names it
    assert ids(found) == ["10.0.0.2:8000"]
    found.answered("one", [at(2), at(1)])
    assert ids(found) == ["10.0.0.2:8000"]
    found.answered("one", [at(2), at(9)])
    found.answered("one", [at(1), at(2)])
    assert ids(found) == ["10.0.0.1:8000", "10.0.0.2:8000"]


def test_a_long_answer_keeps_the_replicas_that_are_known() -> None:
    found = roster(most=3)
    assert found.answered("one", [at(5), at(6)]) == 0
    assert found.answered("one", [at(1), at(2), at(3), at(6), at(5)]) == 2
    first = ids(found)
    assert first == ["10.0.0.5:8000", "10.0.0.6:8000", "10.0.0.1:8000"]
    assert found.answered("one", [at(3), at(6), at(1), at(2), at(5)]) == 2
    assert sorted(ids(found)) == sorted(first)


def test_an_answer_with_a_part_missing_removes_nothing() -> None:
    found = roster(most=3)
    found.answered("one", [at(1), at(2)])
    found.answered("one", [at(3)], is_complete=False)
    assert sorted(ids(found)) == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
    assert found.answered("one", [at(4)], is_complete=False) == 1
    found.answered("one", [at(3)])
    assert ids(found) == ["10.0.0.3:8000"]


def test_a_reload_keeps_the_answers_of_the_sources_that_remain() -> None:
    found = roster()
    found.answered("one", [at(1)])
    found.answered("two", [at(2)])
    found.removed(at(2).replica)
    after = found.adopted({"two": heavier, "three": heavier}, 100)
    assert ids(after) == ["10.0.0.2:8000"], "a reload returns what was removed"
    assert after.answered("one", [at(1)]) == 0
    assert ids(after) == ["10.0.0.2:8000"]
    assert ids(found) == ["10.0.0.1:8000"], "the roster in force does not change"
    kept = after.members((), CONFIG)["10.0.0.2:8000"].replica
    assert kept.weight == 7, "the source has new settings"


def heavier(found: Found) -> Found:
    return found._replace(replica=msgspec.structs.replace(found.replica, weight=7.0))


def test_a_replica_without_a_region_has_that_of_the_router() -> None:
    """Also if only the configuration has changed since the source answered."""
    found = roster()
    stated, unstated, external = at(1, "stated"), at(2, "unstated"), at(3, "external")
    found.answered(
        "one",
        [
            stated._replace(replica=msgspec.structs.replace(stated.replica, region="us")),
            unstated,
            external._replace(replica=msgspec.structs.replace(external.replica, pool="cloud")),
        ],
    )
    pools = {"cloud": Pool(external=True)}
    for region in ("eu", "asia"):
        members = found.members((), Config(region=region, pools=pools)).values()
        assert [member.replica.region for member in members] == ["us", region, ""]


def engine(number: int) -> Engine:
    return parse_replica_url(at(number).replica.url).engine


def test_what_was_removed_before_a_restart_stays_out_until_every_source_has_answered() -> None:
    before, after = roster(), roster()
    before.answered("one", [at(1), at(2)])
    before.answered("two", [at(3), at(4)])
    before.removed(at(2).replica)
    before.removed(at(4).replica)
    assert before.removed_engines == [engine(2), engine(4)]
    after.keep_out(before.removed_engines)
    after.answered("one", [at(1), at(2)])
    assert ids(after) == ["10.0.0.1:8000"]
    assert after.removed_engines == [engine(2), engine(4)], "a restart may follow at once"
    after.answered("two", [at(3)])
    assert ids(after) == ["10.0.0.1:8000", "10.0.0.3:8000"]
    assert after.removed_engines == [engine(2)], "no source names the other one"
    after.keep_out([engine(3)])
    assert ids(after) == ["10.0.0.1:8000"]


def test_a_removal_before_a_restart_ends_like_any_other() -> None:
    """Even if one source never answers."""
    roster = Roster(("one", "silent"), 10)
    roster.keep_out([engine(1), engine(2)])
    roster.answered("one", [at(1), at(3)])
    assert ids(roster) == ["10.0.0.3:8000"]
    roster.answered("one", [at(3)])
    roster.answered("one", [at(1), at(2), at(3)])
    assert ids(roster) == ["10.0.0.1:8000", "10.0.0.3:8000"]
    assert roster.removed_engines == [engine(2)]


def test_the_lowest_priority_number_that_is_available_is_used() -> None:
    members = {
        name: Member(at(1, name).replica, source, priority)
        for name, source, priority in (
            ("a1", "one", 10),
            ("a2", "one", 10),
            ("b", "one", 20),
            ("c", "one", 30),
            ("d", "two", 40),
        )
    }
    assert standby(members, {"a1", "a2", "b", "c", "d"}) == {"b", "c"}
    assert standby(members, {"a2", "c"}) == {"b", "c"}
    assert standby(members, {"b", "c"}) == {"c"}
    assert standby(members, {"c"}) == set()
    assert standby(members, ()) == {"b", "c"}
    assert standby({}, {"x"}) == set()
