"""Addresses: valid and invalid forms, and the advice in the error."""

import pytest

from router.config.address import (
    ReplicaUrl,
    check_store_url,
    join_host_port,
    parse_host,
    parse_replica_url,
    split_host_port,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:80", ("::1", 80)),
        ("[0:0::0001]:80", ("::1", 80)),
        ("Gpu-1.Example:0", ("gpu-1.example", 0)),
        ("my_service:65535", ("my_service", 65535)),
        ("13070", ("0.0.0.0", 13070)),
    ],
)
def test_a_listening_address_is_split(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text) == expected


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "HOST:PORT"),
        ("localhost", "HOST:PORT"),
        ("localhost:", "HOST:PORT"),
        (":8080", "0.0.0.0:8080"),
        ("::1", "brackets"),
        ("[::1]", "is not a port|no port"),
        ("[::g]:80", "not an IPv6"),
        ("[fe80::1%eth0]:80", "zone"),
        ("1.2.3.256:80", "not an IPv4"),
        ("1.2.3:80", "not an IPv4"),
        ("a b:80", "not a host name"),
        ("a..b:80", "not a host name"),
        ("-a:80", "not a host name"),
        ("a\n:80", "not a host name"),
        ("b\u00fccher.example:80", "xn--"),
        ("a:65536", "not a port"),
        ("a:-1", "not a port"),
        ("a:8o80", "not a port"),
        ("a:\u0661", "not a port"),
    ],
)
def test_a_bad_listening_address_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        split_host_port(text)


@pytest.mark.parametrize(
    ("text", "expected", "authority", "default_id"),
    [
        ("http://gpu-1:8000", ReplicaUrl("http", "gpu-1", 8000), "gpu-1:8000", "gpu-1:8000"),
        ("http://gpu-1:8000/", ReplicaUrl("http", "gpu-1", 8000), "gpu-1:8000", "gpu-1:8000"),
        ("HTTP://GPU-1", ReplicaUrl("http", "gpu-1", 80), "gpu-1", "gpu-1:80"),
        ("https://[::1]", ReplicaUrl("https", "::1", 443), "[::1]", "[::1]:443"),
        ("http://[::1]:8000", ReplicaUrl("http", "::1", 8000), "[::1]:8000", "[::1]:8000"),
        ("https://h:80/a/b/", ReplicaUrl("https", "h", 80, "/a/b"), "h:80", "h:80/a/b"),
    ],
)
def test_a_replica_url_is_taken_apart(
    text: str, expected: ReplicaUrl, authority: str, default_id: str
) -> None:
    url = parse_replica_url(text)
    assert url == expected
    assert url.authority == authority
    assert url.default_id == default_id
    assert url.is_tls == (url.scheme == "https")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("gpu-1:8000", "write http://gpu-1:8000"),
        ("", "no scheme"),
        ("grpc://gpu-1:8000", "use http:// or https://"),
        ("http://", "no host"),
        ("http:///x", "no host"),
        ("http://:80", "not a host name"),
        ("http://gpu:0", "not a port"),
        ("http://gpu:", "not a port"),
        ("http://user:pw@gpu", "token_file"),
        ("http://gpu?x=1", "query"),
        ("http://gpu/a#b", "fragment"),
        ("http://gpu/a b", "path prefix"),
        ("http://gpu/a/../b", "path prefix"),
        ("http://gpu/%zz", "path prefix"),
        ("http://gpu/a\r\nX: y", "path prefix"),
        ("http://gpu:8000/v1", "leave out the /v1"),
        ("http://gpu:8000/v1/", "leave out the /v1"),
        ("http://::1:80", "brackets"),
    ],
)
def test_a_bad_replica_url_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_replica_url(text)


def test_two_spellings_of_one_engine_are_equal() -> None:
    spellings = ["http://localhost:8000", "http://127.0.0.1:8000/", "HTTP://LOCALHOST.:8000"]
    assert len({parse_replica_url(text).engine for text in spellings}) == 1
    assert parse_replica_url("http://localhost:8000/a").engine != (
        parse_replica_url("http://localhost:8000/b").engine
    )


def test_joining_is_the_inverse_of_splitting() -> None:
    for text in ("127.0.0.1:8080", "[::1]:80", "gpu-1:0"):
        assert join_host_port(*split_host_port(text)) == text


def test_a_name_has_at_most_253_characters() -> None:
    label = "a" * 63
    assert parse_host(f"{label}.{label}.{label}.{'a' * 61}")
    with pytest.raises(ValueError, match="not a host name"):
        parse_host(f"{label}.{label}.{label}.{'a' * 62}")
    with pytest.raises(ValueError, match="not a host name"):
        parse_host("a" * 64)


@pytest.mark.parametrize(
    "text",
    [
        "redis://redis",
        "redis://:secret@redis:6379/0",
        "rediss://user:p%2Fw@[::1]:6380/1?ssl_ca_certs=/ca.pem",
        "unix:///run/redis.sock?db=0",
    ],
)
def test_a_url_of_a_store_is_valid(text: str) -> None:
    check_store_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "redis:6379",
        "http://:secret@redis:6379",
        "redis://:secret@",
        "redis://:secret@redis:port",
        "redis://:secret@redis:99999",
        "redis://:sec/ret@redis:6379",
        "redis://:1/secret@redis:6379",
        "redis://:se#cret@redis:6379",
        "redis://[secret",
        "unix://",
    ],
)
def test_an_invalid_url_of_a_store_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be redis://:PASSWORD@HOST:PORT") as caught:
        check_store_url(text)
    assert "sec" not in str(caught.value)
