"""The notes of `hedgerow check`: valid settings that an operator rarely means."""

from pathlib import Path

import pytest

from router.cli import main
from tests.places import CERT, KEY

GOOD = "sixteen-of-these"
TLS = f"tls: {{cert: {CERT}, key: {KEY}}}"
SHORT = "characters, and other machines can reach admin.listen"
PLAIN = "send the token over plain HTTP"
WIDE = "trusted_proxies has "


def of_admin(fields: str, listen: str = "0.0.0.0:9901") -> str:
    return f"admin: {{listen: '{listen}', {fields}}}"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("", []),
        (of_admin(f"token: x, {TLS}"), ["admin.token has 1 character, and other machines"]),
        (of_admin(f"token: fifteen-of-them, {TLS}"), [f"admin.token has 15 {SHORT}"]),
        (of_admin(f"token_file: TOKEN, {TLS}"), [f"admin.token has 3 {SHORT}"]),
        (of_admin(f"token_env: SHORT, {TLS}", "[::]:9901"), [f"admin.token has 4 {SHORT}"]),
        (of_admin(f"token: {GOOD}"), [PLAIN]),
        (of_admin("token: x", "10.0.0.1:9901"), ["admin.token has 1", PLAIN]),
        (of_admin(f"token: {GOOD}, {TLS}"), []),
        (of_admin("token: x", "127.0.0.1:9901"), []),
        (of_admin(f"token: x, tls: {{cert: {CERT}, key: {KEY}, client_ca: {CERT}}}"), []),
        ("trusted_proxies: [0.0.0.0/0]", [f"{WIDE}0.0.0.0/0,"]),
        ("trusted_proxies: [10.0.0.0/8, '::/0']", [f"{WIDE}::/0,"]),
        ("trusted_proxies: [0.0.0.0/1, 128.0.0.0/1]", [f"{WIDE}0.0.0.0/0,"]),
        ("trusted_proxies: [10.0.0.0/8, 'fd00::/16', 192.0.2.7]", []),
        ("cors: {origins: ['*'], headers: [Authorization]}", ["cors.headers has no Content-Type"]),
        ("cors: {origins: ['*'], headers: [content-type]}", ["cors.headers has no Authorization"]),
        (
            "cors: {origins: ['https://a'], headers: [x-mine]}",
            ["no Authorization, so", "no Content-Type, so"],
        ),
        ("cors: {origins: ['*'], headers: [authorization, content-type]}", []),
        ("cors: {headers: [Authorization]}", []),
        ("cors: {origins: ['*']}", []),
    ],
)
def test_a_setting_that_is_rarely_meant_is_noted(
    text: str,
    notes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHORT", "four")
    (tmp_path / "token").write_text("abc\n")
    file = tmp_path / "config.yaml"
    text = text.replace("TOKEN", str(tmp_path / "token"))
    file.write_text(f"replicas: [http://a:1]\n{text}\n")
    assert main(["check", str(file)]) == 0
    first, *found = capsys.readouterr().out.splitlines()
    assert first.startswith("ok: ")
    assert len(found) == len(notes), found
    for line, note in zip(found, notes, strict=True):
        assert line.startswith("note: ") and note in line


def test_files_of_another_machine_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"replicas: [http://a:1]\n{of_admin(f'token_file: /none, {TLS}')}\n")
    assert main(["check", "--skip-files", str(file)]) == 0
    assert "note: " not in capsys.readouterr().out
