"""Members of a body by which an engine takes more than the router has judged.

- `lora_path` (SGLang) and `parameters.adapter_id` (TGI) choose an adapter, whatever `model` says.
- `parameters` (SGLang's /vertex_generate) is passed on as the request itself: its `lora_path` and
  its `priority` count.
- `priority` on a path that the router does not know is neither replaced nor removed.

A member is refused only where a limit applies to it: adapters for a key with a list of models,
priorities for a request with a ceiling. There a member that is too long to be decoded at once is
refused as well. Must never: change a body, or keep a view into it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from router.core.errors import Reason, RouterError
from router.core.unreadable import NOT_JSON
from router.intake.fields import NULL, Fields, Parameters, value_of

_decode: Final = msgspec.json.Decoder(Parameters).decode
_OBJECT: Final = b"{"
_NO_NUMBERS: Final = (b"{", b"[")
_VALUE_BYTES: Final = 256 * 1024  # of a value that is decoded: about 20 ms, if it is a list
_OBJECT_BYTES: Final = 1024 * 1024  # of an object that is looked through: about 14 ms


def check_adapters(fields: Fields, models: frozenset[str]) -> None:
    """Raises RouterError (MODEL_NOT_ALLOWED) where the body chooses an adapter outside `models`."""
    _check_adapter("lora_path", fields.lora_path, models)
    nested = _parameters(fields)
    if nested is not None:
        _check_adapter("parameters.lora_path", nested.lora_path, models)
        _check_adapter("parameters.adapter_id", nested.adapter_id, models)


def check_no_priority(fields: Fields) -> None:
    """Raises RouterError (BAD_PRIORITY) where an engine could read a priority from the body of a
    path that the router does not know."""
    _check_no_number("priority", fields.priority)
    nested = _parameters(fields)
    if nested is not None:
        _check_no_number("parameters.priority", nested.priority)


def _parameters(fields: Fields) -> Parameters | None:
    """The body's `parameters`; None: there is no such object.

    Raises RouterError (BAD_JSON, UNREAD_BODY).
    """
    raw = fields.parameters
    if raw is None or bytes(memoryview(raw)[:1]) != _OBJECT:
        return None
    _check_length("parameters", raw, _OBJECT_BYTES)
    try:
        return _decode(raw)
    except NOT_JSON as err:
        raise RouterError(Reason.BAD_JSON, f"`parameters` is not JSON: {err}") from None


def _check_adapter(name: str, raw: msgspec.Raw | None, models: frozenset[str]) -> None:
    """`raw`: a name, or a list with one for each prompt; null is the base model."""
    if raw is None or raw == NULL:
        return
    _check_length(name, raw, _VALUE_BYTES)
    value = value_of(raw)
    names = value if isinstance(value, list) else [value]
    for adapter in names:
        if adapter is not None and (not isinstance(adapter, str) or adapter not in models):
            words = f"this key may not ask for the adapter in `{name}`: name one of its models"
            raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param=name)


def _check_no_number(name: str, raw: msgspec.Raw | None) -> None:
    if raw is None or bytes(memoryview(raw)[:1]) in _NO_NUMBERS:
        return
    _check_length(name, raw, _VALUE_BYTES)
    if not _may_be_number(raw):
        return
    words = (
        f"`{name}` cannot be held to the priority ceiling on this path: "
        "leave it out, or send the header x-priority"
    )
    raise RouterError(Reason.BAD_PRIORITY, words, param=name)


def _check_length(name: str, raw: msgspec.Raw, most: int) -> None:
    if len(raw) > most:
        words = f"`{name}` is over {most} bytes, which is too long to be judged"
        raise RouterError(Reason.UNREAD_BODY, words, param=name)


def _may_be_number(raw: msgspec.Raw) -> bool:
    """Whether pydantic could make a number of a value, as the engines let it do with texts."""
    value = value_of(raw)
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return value is not None
