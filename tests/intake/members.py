"""Makes the fields of a body, and shows them as a dict, so that tests can compare them."""

from typing import Any

from router.intake.fields import NAMES, RARE, Fields, Unread


def made(**members: Any) -> Fields:
    fields = Fields()
    for name, value in members.items():
        fields.put(name, value)
    return fields


def member(fields: Fields, name: str) -> Any:
    return fields.other(name) if name in RARE else getattr(fields, name)


def found(fields: Fields) -> dict[str, Any]:
    """The members that are present, and why the body was not read."""
    present = {name: member(fields, name) for name in NAMES if member(fields, name) is not None}
    if isinstance(fields, Unread):
        return {**present, "why": fields.why, "is_scanned": fields.is_scanned}
    return present
