"""Refuses bodies with which a client could exceed its limits.

They could get a model or a priority that the client's API key may not use, or hide their work.

A key may be limited to a list of models. The priority of a request may be limited by a ceiling. An
adapter (LoRA) counts as a model. The following members of a JSON body could bypass these limits:

- `lora_path` and `parameters.adapter_id` choose an adapter at some engines, even against `model`.
- `lora` (numbers and scales; an empty list turns adapters off) and `lora_request` (a path) choose
  adapters at some engines in a way that cannot be compared with model names.
- An engine that does not read `model` serves its own model, unless one of these members chooses an
  adapter (`check_default`).
- The engine treats `parameters` (/vertex_generate) as a request of its own, so its members
  `lora_path` and `priority` are checked as well.
- On a path that the router does not know, `priority` is neither replaced nor removed.
- With `background`, an engine answers /v1/responses at once and generates the output later. The
  router would see neither the tokens nor the end of this work, so the member is always refused.

Any other member is refused only if a limit applies to the request. Then a member that is too long
to be decoded at once is refused as well.

Must never: change a body, or keep a reference to its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from router.core.errors import Reason, RouterError
from router.core.unreadable import NOT_JSON
from router.fleet.engines.common.descriptor import MODEL
from router.fleet.engines.common.registry import ADAPTER_PATHS, engine_of
from router.intake.fields import Fields
from router.intake.shapes import Parameters
from router.intake.values import NULL, is_given, raw_flag_of, value_of

_decode: Final = msgspec.json.Decoder(Parameters).decode

# The members by which an engine chooses the adapter that it serves (see `Adapters` in the
# description of the engine).
_PATH: Final = "lora_path"
_NESTED_PATH: Final = "parameters.lora_path"
_NESTED_ID: Final = "parameters.adapter_id"
CHOOSERS: Final = frozenset({MODEL, _PATH, _NESTED_PATH, _NESTED_ID, ""})

_OBJECT: Final = b"{"
_NO_NUMBERS: Final = (b"{", b"[")
# Maximum bytes of a value that is decoded: decoding a list of this size takes about 20 ms.
_VALUE_BYTES: Final = 256 * 1024
# Maximum bytes of an object whose members are searched, which takes about 14 ms at this size.
_OBJECT_BYTES: Final = 1024 * 1024


def check_adapters(fields: Fields, models: frozenset[str]) -> None:
    """Raises RouterError (MODEL_NOT_ALLOWED) if the body chooses an adapter not in `models`."""
    _check_no_adapter("lora", fields.other("lora"))
    _check_no_adapter("lora_request", fields.other("lora_request"))
    _check_adapter("lora_path", fields.other("lora_path"), models)
    nested = _parameters(fields)
    if nested is not None:
        _check_adapter("parameters.lora_path", nested.lora_path, models)
        _check_adapter("parameters.adapter_id", nested.adapter_id, models)


def check_default(
    fields: Fields,
    path: bytes,
    served: Iterable[tuple[str, frozenset[str], frozenset[str]]],
    models: frozenset[str],
    *,
    is_known: bool,
) -> None:
    """Refuses a request if an engine would ignore its `model` and serve a model not in `models`.

    Raises RouterError (MODEL_NOT_ALLOWED). `served` has one tuple for each replica that may get the
    request: the engine ("" if not detected), the names of the model, the names of the adapters.
    `is_known`: the router knows the path.
    """
    for engine, own, adapters in served:
        if not own.isdisjoint(models):
            continue
        chooser = _chooser(engine, path, fields.model, adapters, is_known)
        if chooser == MODEL or (chooser and _is_chosen(fields, chooser)):
            continue
        words = (
            "on this path the replica's engine ignores `model`, and this key may not use the "
            "model that it would serve"
        )
        if chooser:
            words += f": name one of the key's adapters in `{chooser}`"
        raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param="model")


def _chooser(
    engine: str, path: bytes, model: str | None, adapters: frozenset[str], is_known: bool
) -> str:
    """Return the member by which an engine chooses the adapter on a path; "" if there is none."""
    rules = engine_of(engine).adapters
    if rules is None:  # the engine is unknown, and may ignore `model` on the `ADAPTER_PATHS`
        return "" if path in ADAPTER_PATHS else MODEL
    chooser = rules.by_path.get(path)
    if chooser is not None:
        return chooser
    if not is_known:
        return rules.unknown
    return rules.by_plain_name if model is not None and model in adapters else MODEL


def _is_chosen(fields: Fields, chooser: str) -> bool:
    """Return whether the member `chooser` of the body names an adapter for every prompt."""
    raw = fields.other("lora_path")
    if chooser != _PATH:
        nested = _parameters(fields)
        if nested is None:
            return False
        raw = nested.lora_path if chooser == _NESTED_PATH else nested.adapter_id
    value = value_of(raw)
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) for name in names)


def check_no_background(fields: Fields) -> None:
    """Raises RouterError (BACKGROUND_NOT_SERVED) if a body of /v1/responses sets `background`.

    A value that no engine reads as a boolean is refused, too.
    """
    raw = fields.other("background")
    if raw is not None and raw != NULL and raw_flag_of(raw) is not False:
        words = "responses in the background are not served: leave `background` out, or send false"
        raise RouterError(Reason.BACKGROUND_NOT_SERVED, words, param="background")


def check_no_priority(fields: Fields) -> None:
    """Raises RouterError (BAD_PRIORITY) if an engine could read a priority from the body.

    Called for a request whose path the router does not know.
    """
    _check_no_number("priority", fields.priority)
    nested = _parameters(fields)
    if nested is not None:
        _check_no_number("parameters.priority", nested.priority)


def _parameters(fields: Fields) -> Parameters | None:
    """Return the body's member `parameters`; None if the body has no such object.

    Raises RouterError (BAD_JSON, UNREAD_BODY).
    """
    raw = fields.other("parameters")
    if raw is None or bytes(memoryview(raw)[:1]) != _OBJECT:
        return None
    _check_length("parameters", raw, _OBJECT_BYTES)
    try:
        return _decode(raw)
    except NOT_JSON as err:
        raise RouterError(Reason.BAD_JSON, f"`parameters` is not JSON: {err}") from None


def _check_adapter(name: str, raw: msgspec.Raw | None, models: frozenset[str]) -> None:
    """Raises RouterError if an adapter in the member `name` is not in `models`.

    `raw`: the name of an adapter, or a list with a name for each prompt. `null` stands for the base
    model.
    """
    if raw is None or raw == NULL:
        return
    _check_length(name, raw, _VALUE_BYTES)
    value = value_of(raw)
    names = value if isinstance(value, list) else [value]
    for adapter in names:
        if adapter is not None and (not isinstance(adapter, str) or adapter not in models):
            words = f"this key may not use the adapter in `{name}`: name one of the key's models"
            raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param=name)


def _check_no_adapter(name: str, raw: msgspec.Raw | None) -> None:
    if is_given(raw):
        words = (
            f"this key is limited to some models, and `{name}` may choose another one: leave it "
            "out, and name one of the key's models in `model`"
        )
        raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param=name)


def _check_no_number(name: str, raw: msgspec.Raw | None) -> None:
    if raw is None or bytes(memoryview(raw)[:1]) in _NO_NUMBERS:
        return
    _check_length(name, raw, _VALUE_BYTES)
    if not _may_be_number(raw):
        return
    words = (
        f"the priority ceiling cannot be applied to `{name}` on this path: "
        "leave it out, or send the header x-priority"
    )
    raise RouterError(Reason.BAD_PRIORITY, words, param=name)


def _check_length(name: str, raw: msgspec.Raw, most: int) -> None:
    if len(raw) > most:
        words = f"`{name}` is over {most} bytes, which is too long to be checked"
        raise RouterError(Reason.UNREAD_BODY, words, param=name)


def _may_be_number(raw: msgspec.Raw) -> bool:
    """Return whether pydantic in an engine could convert a JSON value or string to a number."""
    value = value_of(raw)
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return value is not None
