"""When the content of a watched file is used."""

from router.fleet.discovery.file_source import Stable


def test_a_content_is_used_once_and_when_it_is_stable() -> None:
    file = Stable()
    assert file.is_new(b"a"), "the first content is used at once"
    assert not file.is_new(b"a")
    assert not file.is_new(b"ab"), "the file may still be written"
    assert not file.is_new(b"abc")
    assert file.is_new(b"abc")
    assert not file.is_new(b"abc")


def test_a_content_is_used_again_if_its_meaning_has_changed() -> None:
    file = Stable()
    file.again()
    assert file.is_new(b"a")
    file.again()
    assert file.is_new(b"a")
    assert not file.is_new(b"a")
    file.again()
    assert not file.is_new(b"b"), "the file may still be written"
    assert file.is_new(b"b")


def test_a_look_without_a_content_in_between() -> None:
    file = Stable()
    file.lost()
    assert file.is_new(b"a")
    assert not file.is_new(b"b")
    file.lost()
    assert not file.is_new(b"b")
    assert file.is_new(b"b")
