"""A key is found by its hash, in any form of the header, and never revealed."""

import json
from pathlib import Path
from typing import Any

import pytest

from router.cli import main
from router.config.key_files import read_keys
from router.config.keys import (
    SHORTEST,
    KeyLine,
    KeysProblem,
    hash_of,
    line_of,
    parse_keys,
)
from router.config.model import Keys
from router.intake import keys as keys_module
from router.intake.keys import Key, Keyring

SECRET = "hr-" + "s" * 40


def a_line(**fields: Any) -> KeyLine:
    return KeyLine(**{"name": "acme", "hash": hash_of(SECRET.encode()), **fields})


def text_of(*lines: KeyLine) -> bytes:
    return "\n".join(line_of(line) for line in lines).encode()


# The file.


def test_a_line_says_everything_and_is_read_as_it_was_written() -> None:
    line = a_line(
        tier="pro",
        ceiling="high",
        models=("m", "n"),
        concurrency=8,
        requests_per_minute=60.0,
        tokens_per_minute=1e5,
        weight=2.0,
        ttft_slo_ms=300.0,
        tpot_slo_ms=25.0,
        names_users=True,
        may_hedge=True,
        region="eu",
        allowed_regions=("eu", "us"),
    )
    assert parse_keys(text_of(line)) == (line,)
    assert json.loads(line_of(a_line())) == {"name": "acme", "hash": hash_of(SECRET.encode())}


def test_comments_and_empty_lines_are_nothing() -> None:
    assert parse_keys(b"# ours\n\n  \r\n" + text_of(a_line()) + b"\r\n") == (a_line(),)
    assert parse_keys(b"") == ()


GOOD = line_of(a_line())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1: "),
        (GOOD.replace("name", "nam"), "line 1: "),
        (f"# c\n{GOOD}\n{GOOD}", "line 3: the same key as line 2"),
        (GOOD.replace("sha256:", "md5:"), "line 1: a hash is"),
        (GOOD.replace("acme", "a b"), "line 1: a name is"),
        (GOOD.replace("acme", ""), "line 1: a name is"),
        (GOOD[:-1] + ',"ceiling":"top"}', "line 1: ceiling: must be one of critical, high"),
        (GOOD[:-1] + ',"concurrency":0}', "line 1: concurrency: must be at least 1"),
        (
            GOOD[:-1] + ',"requests_per_minute":0}',
            "line 1: requests_per_minute: must be above 0",
        ),
        (GOOD[:-1] + ',"ttft_slo_ms":0}', "line 1: ttft_slo_ms: must be at least 0.001"),
        (GOOD[:-1] + ',"color":"red"}', "line 1: color: unknown key"),
        (GOOD.replace(hash_of(SECRET.encode()), SECRET), "line 1: a hash is"),
        (GOOD[:-1] + f',"ceiling":"{SECRET}"}}', "line 1: ceiling: must be one of"),
        (GOOD[:-1] + ',"region":"e u"}', "line 1: the name of a region is"),
        (GOOD[:-1] + ',"allowed_regions":["eu",""]}', "line 1: the name of a region is"),
        (GOOD[:-1] + ',"allowed_regions":[]}', "line 1: allowed_regions is empty"),
        (
            GOOD[:-1] + ',"region":"us","allowed_regions":["eu"]}',
            "line 1: region is not among allowed_regions",
        ),
        ("\xff", "line 1: "),
    ],
)
def test_an_invalid_line_is_reported_without_its_secret(text: str, complaint: str) -> None:
    with pytest.raises(KeysProblem) as caught:
        parse_keys(text.encode("latin-1"))
    assert str(caught.value).startswith(complaint)
    assert SECRET not in str(caught.value)


def test_keys_of_one_name_say_the_same() -> None:
    other = a_line(hash=hash_of(b"another"))
    ring = Keyring(parse_keys(text_of(a_line(), other)))
    found = ring.find(b"Authorization: Bearer another", None)
    assert found is ring.find(b"Authorization: Bearer " + SECRET.encode(), None)
    with pytest.raises(KeysProblem, match="line 2: the settings of acme differ from line 1"):
        parse_keys(text_of(a_line(), a_line(hash=hash_of(b"another"), weight=2.0)))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(KeysProblem, match="cannot be read"):
            read_keys(Keys(file=str(path)))


# The command.


def test_the_command_makes_a_key_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = "key --name acme --tier pro --model m --model n --concurrency 3 --names-users "
    words += "--region eu --allowed-region eu --allowed-region uk"
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    key = err.split()[-1]
    (line,) = parse_keys(out.encode())
    assert line == a_line(
        hash=hash_of(key.encode()),
        tier="pro",
        models=("m", "n"),
        concurrency=3,
        names_users=True,
        region="eu",
        allowed_regions=("eu", "uk"),
    )
    assert key not in out
    assert Keyring([line]).find(f"authorization: Bearer {key}".encode(), None) is not None


def test_the_command_takes_a_key_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    monkeypatch.setattr("sys.stdin", StringIO(SECRET + "\n"))
    assert main(["key", "--name", "acme", "--stdin"]) == 0
    assert parse_keys(capsys.readouterr().out.encode()) == (a_line(),)
    monkeypatch.setattr("sys.stdin", StringIO("k" * (SHORTEST - 1) + "\n"))
    assert main(["key", "--name", "acme", "--stdin"]) == 2
    assert "characters" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["--name a/b", "--name a --ceiling top", "--name a --concurrency 0", "--name a --weight 0"],
)
def test_the_command_refuses_what_the_file_would(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["key", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and err


# Looking up.


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer {}",
        "authorization:Bearer {}",
        "AUTHORIZATION:   bearer   {}  ",
        "Authorization: BEARER {}\t",
    ],
)
def test_a_key_in_authorization(line: str) -> None:
    ring = Keyring([a_line()])
    written = line.format(SECRET).encode()
    for _ in range(2):  # the second time from the cache
        found = ring.find(written, None)
        assert found is not None and found.name == "acme"


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Basic {}",
        "Authorization: {}",
        "Authorization: Bearer {}x",
        "Authorization: Bearer x{}",
        "Authorization: Bearer",
        "Authorization: Bearer " + "k" * 10_000,
        "Authorization: Bearer " + hash_of(SECRET.encode()),
    ],
)
def test_what_is_no_key(line: str) -> None:
    assert Keyring([a_line()]).find(line.format(SECRET).encode(), None) is None


def test_a_key_in_x_api_key() -> None:
    ring = Keyring([a_line()])
    line = b"X-Api-Key: " + SECRET.encode()
    assert ring.find(None, line) is not None
    assert ring.find(b"Authorization: Bearer none", line) is not None
    assert ring.find(None, b"x-api-key: none") is None
    assert ring.find(None, None) is None
    assert Keyring().find(None, line) is None


def test_spellings_of_a_key_are_remembered_up_to_a_bound() -> None:
    ring = Keyring([a_line()])
    most = keys_module._MEMO
    for n in range(2 * most + 10):
        line = b"Authorization: %bBearer %b" % (
            b" " * (n % 300),
            SECRET.encode() + b" " * (n // 300),
        )
        ring.find(line, None)
        ring.find(b"Authorization: Bearer guess-%d" % n, None)
        assert len(ring._memo) <= most
    assert not any(b"guess" in line for line in ring._memo), "a guesser leaves nothing behind"


def test_a_key_without_limits_has_none() -> None:
    assert not Key(a_line(tier="pro", weight=3.0)).is_limited
    for field in ("concurrency", "requests_per_minute", "tokens_per_minute"):
        assert Key(a_line(**{field: 1})).is_limited
