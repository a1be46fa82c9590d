"""Each file of the package declares sections, and the package lists all of them."""

from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from router.config import model
from router.config.annotations import hints, is_struct, without_none
from router.config.model import Config

PACKAGE = model.__name__


def files() -> set[str]:
    return {path.stem for path in Path(model.__path__[0]).glob("*.py")} - {"__init__"}


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The class of a section, of the items of a list, or of the values of a mapping."""
    inner, _ = without_none(kind)
    if get_origin(inner) in (tuple, dict):
        inner = next((each for each in get_args(inner) if is_struct(each)), None)
    return inner if is_struct(inner) else None


SECTIONS = {
    field.encode_name: struct
    for field in msgspec.structs.fields(Config)
    if (struct := struct_in(hints(Config)[field.name])) is not None
}


def test_each_file_declares_sections() -> None:
    """Except the top level, and the types of settings."""
    declaring = {section.__module__ for section in SECTIONS.values()}
    assert declaring == {f"{PACKAGE}.{file}" for file in files() - {"config", "setting_types"}}


def test_the_package_has_every_class() -> None:
    declared = {
        name: each
        for file in files() - {"setting_types"}
        for name, each in vars(getattr(model, file)).items()
        if is_struct(each) and each.__module__ == f"{PACKAGE}.{file}"
    }
    assert {name: each for name, each in vars(model).items() if is_struct(each)} == declared
