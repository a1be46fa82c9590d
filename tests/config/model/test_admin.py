"""The admin port: only an address, and tokens or certificates for other machines."""

from pathlib import Path

import pytest

from router.config.load import parse
from router.config.model import Admin
from router.core.errors import ConfigError
from tests.places import CERT, KEY

REPLICA = "replicas: [http://gpu-1:8000]\n"
TLS = f"tls: {{cert: {CERT}, key: {KEY}"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(REPLICA + text)
    return list(caught.value.problems)


def test_a_bare_address_is_short_for_listen() -> None:
    short = parse(f"{REPLICA}admin: 127.0.0.1:9000")
    assert short == parse(f"{REPLICA}admin: {{listen: '127.0.0.1:9000'}}")
    assert short.admin == Admin(listen="127.0.0.1:9000")


def test_a_flag_replaces_the_address_and_keeps_the_rest() -> None:
    for admin in ("127.0.0.1:9000", "{token: secret, listen: '127.0.0.1:9000'}"):
        config = parse(f"{REPLICA}admin: {admin}", {"admin": {"listen": "127.0.0.1:1"}})
        assert config.admin.listen == "127.0.0.1:1"
    assert config.admin.token == "secret"


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "localhost:1"])
def test_on_loopback_no_token_is_needed(listen: str) -> None:
    assert parse(f"{REPLICA}admin: '{listen}'").admin.token is None


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "admin.test:1"])
def test_beyond_loopback_the_error_names_the_settings(listen: str) -> None:
    for admin in (f"'{listen}'", f"{{listen: '{listen}', {TLS}}}}}"):
        (problem,) = problems(f"admin: {admin}")
        assert problem.startswith(
            f"admin.token: is missing: other machines can reach admin.listen ({listen})"
        )
        assert "admin.token_file" in problem and "admin.tls.client_ca" in problem


def test_a_token_or_a_client_certificate_is_proof(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    for proof in ("token: secret", f"token_file: {file}", f"{TLS}, client_ca: {CERT}}}"):
        parse(f"{REPLICA}admin: {{listen: '0.0.0.0:9901', {proof}}}")


def test_probes_need_no_proof() -> None:
    config = parse(f"{REPLICA}admin: {{probes_listen: '0.0.0.0:9902'}}")
    assert config.admin.probes_listen == "0.0.0.0:9902"


@pytest.mark.parametrize(
    ("admin", "problem"),
    [
        (
            "{token: a, token_file: b}",
            "admin: may have only one of token, token_file and token_env",
        ),
        ("{token: 'a b'}", "admin.token: a token is one word"),
        ("{token_file: /none}", "admin.token_file: cannot read '/none'"),
        ("{probes_listen: gpu-1}", "admin.probes_listen: 'gpu-1' has no port"),
        (f"{{{TLS}, client_ca: /none}}}}", "admin.tls.client_ca: cannot read '/none'"),
        (f"{{{TLS}, client_ca: {KEY}}}}}", "admin.tls.client_ca: no usable PEM certificates"),
        (f"{{tls: {{cert: {KEY}, key: {KEY}}}}}", "admin.tls.cert: no usable PEM"),
        ("[]", "admin: must be a mapping, not a list"),
    ],
)
def test_a_mistake_is_named(admin: str, problem: str) -> None:
    (found,) = problems(f"admin: {admin}")
    assert found.startswith(problem)
