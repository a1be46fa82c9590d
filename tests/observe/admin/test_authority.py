"""The admin requests that need the token, and the names that are answered without it."""

import pytest

from router.observe.admin.authority import Authority

CHANGES = [("POST", "/reload"), ("POST", "/replicas"), ("DELETE", "/replicas/{id}"), ("PUT", "/")]
PAGES = ["/usage", "/queue", "/metrics", "/replicas", "/replicas/{id}", "/fleet", "/hedging", "/x"]
CLOSED = [*CHANGES, *(("GET", page) for page in PAGES), ("HEAD", "/usage"), ("OPTIONS", "/livez")]
OPEN = [("GET", "/livez"), ("GET", "/"), ("GET", "/healthz"), ("HEAD", "/readyz")]


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_all_but_probes_need_the_token(method: str, path: str) -> None:
    assert Authority("secret").needs_token(method, path)


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_probes_do_not(method: str, path: str) -> None:
    assert not Authority("secret").needs_token(method, path)


@pytest.mark.parametrize(("method", "path"), CLOSED + OPEN)
def test_without_a_token_nothing_needs_one(method: str, path: str) -> None:
    assert not Authority(None).needs_token(method, path)


def test_the_token_is_compared() -> None:
    authority = Authority("secret")
    for right in ("Bearer secret", "bearer secret", "Bearer  secret "):
        assert authority.has_token(right)
    wrong = ("", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret")
    for text in (*wrong, "Bearer s\udce9cret", "Bearer secret, Bearer secret"):
        assert not authority.has_token(text)
        assert not Authority(None).has_token(text)


def test_a_reload_changes_the_token() -> None:
    authority = Authority("old")
    authority.adopt("new")
    assert not authority.has_token("Bearer old")
    assert authority.has_token("Bearer new")
    authority.adopt(None)
    assert not authority.needs_token("POST", "/drain")
    assert not authority.has_token("Bearer new")


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        *((name, True) for name in ("", "a", "a:9901", "A.", "10.0.0.1:1", "[::1]:1", "[fd00::1]")),
        *((name, True) for name in ("b.svc:1", "b.internal", "Gpu.Example.COM:9", "x.one.test")),
        *((name, False) for name in ("b.svc.evil", "evil.local", "1.2.3", "0x7f.1", "one.test")),
        *(
            (name, False)
            for name in ("gpu.example.com.x", "agpu.example.com", "xone.test", "e.v:1")
        ),
    ],
)
def test_names_that_a_web_page_cannot_have_are_known(host: str, is_known: bool) -> None:
    authority = Authority(None, ("gpu.example.com", "*.one.test"))
    assert authority.knows("/usage", host) is is_known
    assert authority.knows("/livez", host)
