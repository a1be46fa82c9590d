"""Keys from a folder: the form of a mounted Kubernetes secret, with the checks of the keys file."""

import os
from pathlib import Path

import pytest

import router.config.key_files as key_files
from router.config import addons, tenant_checks
from router.config.key_files import read_keys
from router.config.keys import KeyLine, KeysProblem, hash_of, line_of
from router.config.load import parse
from router.config.model import Keys
from router.core.errors import ConfigError


def key(name: str, secret: str = "", **fields: object) -> str:
    return line_of(KeyLine(name=name, hash=hash_of((secret or name).encode()), **fields)) + "\n"  # type: ignore[arg-type]


class Secret:
    """A folder in which Kubernetes mounts a secret."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        path.mkdir()

    def publish(self, **files: str) -> None:
        """Replace all files at once, as kubelet's AtomicWriter does."""
        self.version += 1
        folder = self.path / f"..2026_11_{self.version}"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        link = self.path / "..data_tmp"
        link.symlink_to(folder.name)
        old = os.path.realpath(self.path / "..data")
        link.rename(self.path / "..data")
        for name in files:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for path in self.path.iterdir():
            if path.is_symlink() and path.name not in (*files, "..data"):
                path.unlink()
        if self.version > 1:
            for path in Path(old).iterdir():
                path.unlink()
            Path(old).rmdir()


def names(folder: Path, file: Path | None = None) -> list[str]:
    rules = Keys(folder=str(folder), file=None if file is None else str(file))
    return [line.name for line in read_keys(rules)]


def test_a_plain_folder(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(key("umbrella"))
    (tmp_path / "a").write_text("# two keys\n" + key("acme") + key("acme", "next"))
    (tmp_path / ".hidden").write_text("not a key")
    assert names(tmp_path) == ["acme", "acme", "umbrella"]


def test_a_mounted_secret_and_its_next_version(tmp_path: Path) -> None:
    secret = Secret(tmp_path / "keys")
    secret.publish(acme=key("acme"), umbrella=key("umbrella"))
    assert names(secret.path) == ["acme", "umbrella"]
    secret.publish(other=key("other"))
    assert names(secret.path) == ["other"]


def test_a_swap_in_the_middle_gives_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Secret(tmp_path / "keys")
    secret.publish(a=key("old-a"), b=key("old-b"))
    real = key_files._read
    swaps = [{"a": key("new-a"), "c": key("new-c")}]

    def swapped(path: str, *rest: str) -> bytes:
        raw = real(path, *rest)
        if swaps:
            secret.publish(**swaps.pop())
        return raw

    monkeypatch.setattr(key_files, "_read", swapped)
    assert names(secret.path) == ["new-a", "new-c"]


def test_file_and_folder_are_checked_as_one(tmp_path: Path) -> None:
    file, folder = tmp_path / "keys.jsonl", tmp_path / "folder"
    folder.mkdir()
    file.write_text(key("acme"))
    (folder / "next").write_text(key("acme", "next"))
    assert names(folder, file) == ["acme", "acme"]
    (folder / "again").write_text(key("acme"))
    with pytest.raises(KeysProblem, match=r"again: line 1: the same key as line 1") as caught:
        names(folder, file)
    assert caught.value.field == "folder"
    (folder / "again").write_text(key("acme", "third", weight=2.0))
    with pytest.raises(KeysProblem, match=r"again: line 1: the settings of acme differ from line"):
        names(folder, file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hr-a-plain-key", "bad: line 1: "),
        (key("acme").replace("sha256:", "md5:"), "bad: line 1: a hash is"),
        (key("acme")[:40], "bad: line 1: not JSON: "),  # a half-written file
        (key("acme", "k")[:-2] + ',"ceiling":"top"}', "bad: line 1: ceiling: must be one of crit"),
        (key("acme", "k")[:-2] + ',"teir":"pro"}', "bad: line 1: teir: unknown key; did you mean"),
        ('{"name":7,', "bad: line 1: "),
        ("[]", "bad: line 1: "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad").write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse(f"replicas: [http://a:1]\nkeys: {{folder: {tmp_path}}}\n")
    (problem,) = caught.value.problems
    assert problem.startswith(f"keys.folder: {words}")
    assert "hr-a-plain-key" not in problem


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysProblem, match="cannot be read: No such file or directory"):
        names(tmp_path / "absent")
    (tmp_path / "inner").mkdir()
    with pytest.raises(KeysProblem, match="inner' cannot be read: Is a directory"):
        names(tmp_path)


def test_a_tier_is_checked(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text(key("acme", tier="gold"))
    with pytest.raises(ConfigError) as caught:
        parse(f"replicas: [http://a:1]\nkeys: {{folder: {tmp_path}}}\n")
    assert caught.value.problems == [
        "keys.folder: acme has the tier 'gold', which is not among priority.tiers "
        "(known: enterprise, pro, free)"
    ]


def test_a_budget_needs_the_addon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tenant_checks, addons):
        monkeypatch.setattr(module, "is_installed", lambda name: False)
    (tmp_path / "acme").write_text(key("acme"))
    text = f"replicas: [http://a:1]\nkeys: {{folder: {tmp_path}}}\n"
    config = parse(text)
    assert addons.wanted(config, read_keys(config.keys)) == {}
    (tmp_path / "acme").write_text(key("acme", tokens_per_month=1.0))
    assert list(addons.wanted(config, read_keys(config.keys))) == ["usage"]
    with pytest.raises(ConfigError) as caught:
        parse(text)
    needs = "acme has a budget: needs the addon usage, which is not installed"
    assert caught.value.problems == [f"keys.folder: {needs}"]


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    """A full disk leaves it; a reload must not take it for the removal of every key."""
    file = tmp_path / "keys.jsonl"
    file.write_text(text)
    with pytest.raises(KeysProblem, match="is empty; a file without keys must have a comment"):
        read_keys(Keys(file=str(file)))
    file.write_text("# no keys yet\n")
    assert read_keys(Keys(file=str(file))) == ()
