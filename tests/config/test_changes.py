"""The texts about a reload: every kind of setting, bounded, and without secrets."""

from router.config.keys import KeyLine, hash_of
from router.config.load import parse
from router.config.shown import TEXTS_MAX, changes, key_changes


def between(before: str, after: str) -> list[str]:
    common = "replicas: [{url: 'http://a:1', id: a}]\n"
    return changes(
        *(parse(text if "replicas" in text else common + text) for text in (before, after))
    )


def test_nothing_changed() -> None:
    assert between("", "") == []


def test_values_have_their_units() -> None:
    assert between("", "timeouts: {connect: 1500ms}") == ["timeouts.connect: 2s -> 1.5s"]
    assert between("", "watch: true") == ["watch: False -> True"]
    assert between("via: a", "via: b") == ["via: a -> b"]
    assert between("", "health: {path: /x}") == ["health.path: unset -> /x"]


def test_a_list_that_was_unset_is_shown() -> None:
    before = "replicas: [{url: 'http://a:1', id: a}]"
    after = "replicas: [{url: 'http://a:1', id: a, models: [m, n]}]"
    assert between(before, after) == ["replicas a: models: unset -> ['m', 'n']"]
    assert between(after, before) == ["replicas a: models: ['m', 'n'] -> unset"]


def test_replicas_are_compared_by_id() -> None:
    before = "replicas: [{url: 'http://a:1', id: a}, {url: 'http://b:1', id: b}]"
    after = "replicas: [{url: 'http://a:1', id: a, weight: 2}, {url: 'http://c:1', id: c}]"
    assert between(before, after) == [
        "replicas a: weight: 1.0 -> 2.0",
        "replicas c added",
        "replicas b removed",
    ]


def test_pools_and_names_are_compared_by_name() -> None:
    pools = "pools: {x: {headers: {k: one}}, y: {headers: {k: one}}}"
    after = "pools: {x: {headers: {k: two}}, z: {}}"
    assert between(pools, after) == [
        "pools x: headers k changed",
        "pools z added",
        "pools y removed",
    ]


def test_a_secret_is_never_shown() -> None:
    secrets = (
        ("admin: {token: %s}", "admin.token changed"),
        ("upstream: {token: %s}", "upstream.token changed"),
        ("access_log: {salt: %s}", "access_log.salt changed"),
    )
    for text, said in secrets:
        assert between(text % "first-secret", text % "second-secret") == [said]
        assert "secret" not in between("", text % "second-secret")[0]


def test_the_number_of_texts_is_bounded() -> None:
    many = ", ".join(f"{{url: 'http://a{n}:1'}}" for n in range(100))
    found = between("", f"replicas: [{many}]")
    assert len(found) == TEXTS_MAX + 1
    assert found[-1] == "and 81 more"


def test_keys_are_compared_by_name() -> None:
    def line(name: str, secret: str, tier: str = "") -> KeyLine:
        return KeyLine(name=name, hash=hash_of(secret.encode() * 20), tier=tier)

    before = [line("acme", "a"), line("beta", "b"), line("gone", "c")]
    after = [line("acme", "a"), line("acme", "d"), line("beta", "b", "pro"), line("new", "e")]
    assert key_changes(before, before) == []
    assert key_changes(before, after) == [
        "key acme changed",
        "key beta changed",
        "key new added",
        "key gone removed",
    ]
