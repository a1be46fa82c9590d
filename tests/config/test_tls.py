"""TLS contexts: requirements on the peer, and a real handshake between client and server."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from router.config.model import Tls, Upstream
from router.config.read_file import read_file
from router.config.tls import FileProblem, listening_context, replica_context, token_of

DATA = Path(__file__).parent / "data"
TLS = Tls(cert=str(DATA / "one.pem"), key=str(DATA / "one.key"))


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str | None:
    """Run both sides in memory; returns the protocol negotiated by ALPN."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    pending = list(sides)
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not pending
    return sides[0].selected_alpn_protocol()


def test_a_replica_with_a_known_certificate_is_trusted() -> None:
    client = replica_context(Upstream(ca_file=TLS.cert))
    assert shake_hands(client, listening_context(TLS), "one.test") == "http/1.1"


@pytest.mark.parametrize(
    ("upstream", "name"),
    [
        (Upstream(), "one.test"),
        (Upstream(ca_file=str(DATA / "other.pem")), "one.test"),
        (Upstream(ca_file=TLS.cert), "stranger.test"),
    ],
)
def test_a_replica_that_cannot_prove_itself_is_refused(upstream: Upstream, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(replica_context(upstream), listening_context(TLS), name)


def test_verification_is_off_only_when_asked() -> None:
    client = replica_context(Upstream(verify=False))
    assert shake_hands(client, listening_context(TLS), "stranger.test") == "http/1.1"


def test_tls_below_1_2_is_refused() -> None:
    for context in (listening_context(TLS), replica_context(Upstream())):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda path: listening_context(Tls(cert=path, key=TLS.key)), "cert"),
        (lambda path: replica_context(Upstream(ca_file=path)), "ca_file"),
    ],
)
def test_a_file_that_disappears_while_it_is_read(
    make: Callable[[str], object], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.pem"

    def read_and_remove(name: str, bytes_max: int) -> bytes:
        content = read_file(name, bytes_max)
        path.unlink(missing_ok=True)
        return content

    path.write_bytes(Path(TLS.cert).read_bytes())
    monkeypatch.setattr("router.config.tls.read_file", read_and_remove)
    with pytest.raises(FileProblem) as caught:
        make(str(path))
    assert caught.value.field == field


def test_a_token_comes_from_its_file_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sk-1\n")
    assert token_of(Upstream(token_file=str(file))) == "sk-1"
    assert token_of(Upstream(token="sk-2")) == "sk-2"
    assert token_of(Upstream()) is None


@pytest.mark.parametrize("content", ["", "\n", "two words", "a\nb", "\u00e9", "x" * 20_000])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(FileProblem) as caught:
        token_of(Upstream(token_file=str(file)))
    assert caught.value.field == "token_file"
    assert "two" not in str(caught.value)
