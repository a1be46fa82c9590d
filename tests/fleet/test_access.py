"""The header fields of requests to a replica with a credential of its own."""

from typing import Any

import pytest

from router.config.model import Credential, Pool
from router.fleet.access import Access

SECRET = "sk-router-secret"
AUTHORIZATION = b"Authorization: Bearer client-key"
API_KEY = b"X-Api-Key: client-key"
COMMON = (
    b"\r\ncontent-type: application/json\r\nX-App: a\r\nCookie: s=1\r\nApi-Key: client-key"
    b"\r\n%b\r\n%b\r\nvia: 1.1 hedgerow\r\nx-forwarded-for: 10.0.0.1\r\ncontent-length: 3"
) % (AUTHORIZATION, API_KEY)


def made(*, pool: Pool = Pool(), token: str | None = SECRET, **credential: Any) -> Access:  # noqa: B008
    return Access(Credential(token=token, **credential), token, pool)


def lines(access: Access) -> list[bytes]:
    found = access.lines(COMMON, [AUTHORIZATION, API_KEY])
    assert found.startswith(b"\r\n")
    return found[2:].split(b"\r\n")


def test_the_replica_gets_its_credential_instead_of_the_clients() -> None:
    assert lines(made()) == [
        *(b"content-type: application/json", b"X-App: a", b"via: 1.1 hedgerow"),
        *(b"x-forwarded-for: 10.0.0.1", b"content-length: 3"),
        b"authorization: Bearer sk-router-secret",
    ]


def test_the_clients_key_is_sent_too_if_configured() -> None:
    found = lines(made(header="api-key", forward_client_key=True))
    assert found[-3:] == [AUTHORIZATION, API_KEY, b"api-key: sk-router-secret"]
    assert b"Api-Key: client-key" not in found
    # The field of the secret has one value only.
    found = lines(made(forward_client_key=True))
    assert AUTHORIZATION not in found and API_KEY in found


def test_a_provider_learns_nothing_about_the_client() -> None:
    pool = Pool(external=True, headers={"OpenAI-Organization": "org"})
    assert lines(made(pool=pool)) == [
        *(b"content-type: application/json", b"content-length: 3"),
        *(b"openai-organization: org", b"authorization: Bearer sk-router-secret"),
    ]
    without = Access(None, None, pool)
    assert lines(without)[-1] == b"openai-organization: org"


def test_a_pool_with_headers_only_keeps_the_usual_credential() -> None:
    access = Access(None, None, Pool(headers={"x-app": "b"}))
    assert AUTHORIZATION in lines(access)
    assert b"X-App: a" not in lines(access)
    assert access.own_fields({"authorization": "Bearer usual"}) == {
        "authorization": "Bearer usual",
        "x-app": "b",
    }


@pytest.mark.parametrize("external", [False, True])
def test_the_routers_own_requests_have_the_credential(external: bool) -> None:
    access = made(pool=Pool(external=external), header="api-key")
    usual = {"authorization": "Bearer usual", "accept-encoding": "identity"}
    assert access.own_fields(usual) == {"accept-encoding": "identity", "api-key": SECRET}


def test_an_object_does_not_show_its_secret() -> None:
    access = made()
    assert SECRET not in repr(access) + str(access)
    assert made(token="a").secret is None  # It may be a word.
