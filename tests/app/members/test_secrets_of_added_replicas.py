"""The secrets that a process of the same machine can get by `POST /replicas`: none."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.app.restart.fleet_state import adopt_members
from router.app.restart.messages import FleetState
from router.config.admin_checks import needs_secret
from router.config.model import Admin, AdminTls, Credential, Pool, Replica, Upstream
from tests.app.discovery.test_pools import engines
from tests.app.members.test_changes import states
from tests.faults.names.engines import Engine
from tests.faults.names.test_credentials import CLIENT, FIRST, SECOND, SENT, USUAL, received
from tests.harness.messages import chat
from tests.harness.replica import eventually
from tests.harness.running import Router, running, scenario

TOKEN = "admin-token-0123456789"
BEARER = f"Authorization: Bearer {TOKEN}"
SECRETS = {FIRST, SECOND, USUAL, CLIENT}
OPEN, GUARDED = Admin(listen="127.0.0.1:0"), Admin(listen="127.0.0.1:0", token=TOKEN)
POOLS = {
    "keyed": Pool(credential=Credential(token=FIRST)),
    "headed": Pool(headers={"x-secret": SECOND}),
    "provider": Pool(external=True, credential=Credential(token=FIRST), headers={"x-a": SECOND}),
}


@asynccontextmanager
async def router_and_thief(**config: Any) -> AsyncIterator[tuple[Router, Engine]]:
    """A router with an engine for the model `m`, and a server that wants to be its replica."""
    async with engines("m", "stolen") as (engine, thief):
        settings = {"upstream": Upstream(token=USUAL), "pools": POOLS, "admin": OPEN, **config}
        async with running(engine.url, **settings) as router:
            yield router, thief


async def stolen(router: Router, thief: Engine, **entry: Any) -> set[str]:
    """The secrets in all bytes that an added replica gets: probes, polls and a client's request."""
    entry = {"url": thief.url, "id": "thief", "models": ["stolen"], **entry}
    answer = await router.admin("/replicas", "POST", BEARER, body=entry)
    assert answer.status == 201, answer
    await eventually(lambda: states(router)["thief"] == "ready", "the added replica")
    before = len(thief.requests)
    assert (await router.ask(chat(*SENT, model="stolen"))).status == 200
    assert len(thief.requests) == before + 1
    return secrets_in(received(thief))


def secrets_in(data: bytes) -> set[str]:
    return {one for one in SECRETS if one.encode() in data}


@pytest.mark.parametrize("entry", [{}, *({"pool": name} for name in POOLS)], ids=str)
@scenario
async def test_without_an_admin_secret_an_added_replica_gets_no_credential(
    entry: dict[str, str],
) -> None:
    async with router_and_thief() as (router, thief):
        assert await stolen(router, thief, **entry) == set()
        # A reload of the same configuration, and an action on the replica, change nothing.
        assert (await router.admin("/reload", "POST")).status == 200
        for action in ("drain", "uncordon"):
            assert (await router.admin(f"/replicas/thief/{action}", "POST")).status == 200
        await eventually(lambda: states(router)["thief"] == "ready", "back in service")
        assert (await router.ask(chat(*SENT, model="stolen"))).status == 200
        assert secrets_in(received(thief)) == set()


@pytest.mark.parametrize(
    ("entry", "secrets"),
    [
        ({}, {USUAL, CLIENT}),  # The client's other header fields are forwarded as usual.
        ({"pool": "keyed"}, {FIRST}),
        ({"pool": "headed"}, {SECOND, USUAL, CLIENT}),
        ({"pool": "provider"}, {FIRST, SECOND}),
    ],
)
@scenario
async def test_with_an_admin_token_it_gets_that_of_its_pool(
    entry: dict[str, str], secrets: set[str]
) -> None:
    async with router_and_thief(admin=GUARDED) as (router, thief):
        assert await stolen(router, thief, **entry) == secrets
        # From now on, nothing is known about who added it.
        router.change(admin=OPEN)
        assert (await router.admin("/reload", "POST", BEARER)).status == 200
        assert (await router.ask(chat(*SENT, model="stolen"))).status == 200
        assert not SECRETS & {str(value).split()[-1] for _, value in thief.last.headers}


@scenario
async def test_after_a_restart_it_gets_no_credential_either() -> None:
    """The process before this one passes the replica on, perhaps with a credential of its own."""
    async with router_and_thief() as (router, thief):
        own = Credential(token=FIRST)
        added = Replica(url=thief.url, id="thief", models=("stolen",), credential=own)
        state = FleetState((added,))
        adopt_members(router.app.parts, state, router.config.replicas, is_watching=True)
        await eventually(lambda: states(router)["thief"] == "ready", "the added replica")
        assert (await router.ask(chat(*SENT, model="stolen"))).status == 200
        assert secrets_in(received(thief)) == set()


def test_the_admin_api_reads_no_file_and_no_variable(tmp_path: Path) -> None:
    """Neither with a token: it may be known to more people than the files of the router."""
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-router")
    os.environ["HEDGEROW_TEST_SECRET"] = "a-secret-of-the-router"

    @scenario
    async def story() -> None:
        for admin in (OPEN, GUARDED):
            async with router_and_thief(admin=admin) as (router, thief):
                texts = set()
                for credential in (
                    {"token_file": str(secret)},
                    {"token_file": str(tmp_path / "missing")},  # no oracle for files, either
                    {"token_env": "HEDGEROW_TEST_SECRET"},
                    {"token": "word"},
                    {},
                    "word",
                ):
                    body = {"url": thief.url, "credential": credential}
                    answer = await router.admin("/replicas", "POST", BEARER, body=body)
                    assert answer.status == 422, answer
                    texts.add(str(answer.json()["error"]["problems"]))
                (text,) = texts
                assert "credential: cannot be set over the admin API" in text
                assert [*states(router)] == ["r0"]
                assert received(thief) == b""

    try:
        story()
    finally:
        del os.environ["HEDGEROW_TEST_SECRET"]


def test_a_client_certificate_counts_like_a_token() -> None:
    tls = AdminTls(cert="c", key="k")
    assert not needs_secret(Admin(tls=tls))
    assert needs_secret(Admin(tls=AdminTls(cert="c", key="k", client_ca="ca")))
    assert needs_secret(Admin(token_env="X")) and needs_secret(Admin(token_file="f"))
