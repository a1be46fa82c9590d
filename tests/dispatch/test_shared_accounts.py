"""The accounts of keys when several routers share the limits (`router/share/limits_told.py`)."""

import pytest

from router.config.keys import KeyLine, hash_of
from router.config.model import Config
from router.core.errors import RouterError
from router.dispatch.tenants import Tenants
from router.intake.keys import Key, Keyring

LINES = (
    KeyLine(name="acme", hash=hash_of(b"acme-key"), requests_per_minute=6, concurrency=4),
    KeyLine(name="umbrella", hash=hash_of(b"umbrella-key")),
)


@pytest.fixture
def tenants() -> Tenants:
    return Tenants(Config(), Keyring(LINES), str, 0.0)


def enter(tenants: Tenants, name: str) -> bool:
    key: Key = tenants.keyring.by_name[name]
    flow = tenants.flows.of(key, None, None, "192.0.2.1", None, b"")
    try:
        tenants.enter(key, flow, 1, 1, 1, 0.0, is_batch=False, takes_steps=False, waits=True)
    except RouterError:
        return False
    return True


def test_one_router_notes_no_accounts(tenants: Tenants) -> None:
    assert enter(tenants, "acme")
    assert tenants.used is None


def test_limited_keys_that_send_requests_are_noted(tenants: Tenants) -> None:
    tenants.used = {}
    assert enter(tenants, "acme") and enter(tenants, "umbrella")
    assert tenants.used == {"acme": tenants.account_of("acme", 0.0)}
    assert tenants.used["acme"].used == (1, 2, 1, 2)


def test_a_key_that_only_others_have_used_gets_an_account(tenants: Tenants) -> None:
    tenants.used = {}
    account = tenants.account_of("acme", 0.0)
    assert account is not None and tenants.account_of("acme", 1.0) is account
    account.used_elsewhere((6, 0, 6, 0), 0.0)
    assert not enter(tenants, "acme")
    assert tenants.used == {}
    assert tenants.account_of("umbrella", 0.0) is None, "it has no limits"
    assert tenants.account_of("nobody", 0.0) is None


@pytest.mark.parametrize("comes_first", [True, False])
def test_divided_limits_apply_to_all_accounts(tenants: Tenants, comes_first: bool) -> None:
    if comes_first:
        tenants.account_of("acme", 0.0)
    tenants.divide(2, 0.0)
    assert [enter(tenants, "acme") for _ in range(4)] == [True, True, True, False]
    account = tenants.account_of("acme", 0.0)
    assert account is not None and account.concurrency.limit == 2
    tenants.adopt(Config(), Keyring(LINES), str, 0.0)
    assert account.concurrency.limit == 2, "a reload changes no part"
    tenants.divide(1, 0.0)
    assert account.concurrency.limit == 4
    assert account.left(0.0)[0] == 0.0
