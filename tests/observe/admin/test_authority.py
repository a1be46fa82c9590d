"""The admin requests that need the token."""

from __future__ import annotations

import pytest

from router.observe.admin.authority import Authority

CHANGES = [("POST", "/reload"), ("POST", "/replicas"), ("DELETE", "/replicas/{id}"), ("PUT", "/")]
TENANTS = [("GET", "/usage"), ("HEAD", "/usage"), ("GET", "/queue"), ("GET", "/metrics")]
OPEN = [("GET", "/livez"), ("GET", "/"), ("GET", "/replicas"), ("HEAD", "/readyz")]


@pytest.mark.parametrize(("method", "path"), CHANGES + TENANTS)
def test_changes_and_tenants_need_the_token(method: str, path: str) -> None:
    authority = Authority("secret")
    for right in ("Bearer secret", "bearer secret", "Bearer  secret "):
        assert authority.allows(method, path, right)
    for wrong in (
        "",
        "secret",
        "Bearer",
        "Bearer ",
        "Bearer secre",
        "Bearer secret2",
        "Basic secret",
    ):
        assert not authority.allows(method, path, wrong)


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_other_pages_do_not(method: str, path: str) -> None:
    assert Authority("secret").allows(method, path, "")


@pytest.mark.parametrize(("method", "path"), CHANGES + TENANTS + OPEN)
def test_without_a_token_nothing_needs_one(method: str, path: str) -> None:
    assert Authority(None).allows(method, path, "")


def test_a_reload_changes_the_token() -> None:
    authority = Authority("old")
    authority.adopt("new")
    assert not authority.allows("POST", "/drain", "Bearer old")
    assert authority.allows("POST", "/drain", "Bearer new")
    authority.adopt(None)
    assert authority.allows("POST", "/drain", "")


def test_a_header_that_is_not_ascii_is_refused() -> None:
    assert not Authority("secret").allows("POST", "/drain", "Bearer s\udce9cret")
