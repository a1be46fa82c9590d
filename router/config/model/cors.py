"""Declares the section `cors`: web pages of other origins that may use the data port."""

from __future__ import annotations

from router.config.model.setting_types import Frozen, Seconds


class Cors(Frozen, frozen=True):
    """The web pages of other origins that may use the data port (CORS).

    With `origins`, the router answers the preflight requests of browsers itself, without a key, and
    adds CORS header fields to every response. These replace the CORS header fields of engines.
    """

    # The origins of these web pages, such as `https://chat.example.com`, or "*" for every page.
    # Empty: the router sends no CORS header fields, and forwards those of engines.
    origins: tuple[str, ...] = ()
    # The header fields that pages may send. "*": every field.
    headers: tuple[str, ...] = ("*",)
    # The methods that pages may use.
    methods: tuple[str, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    # The header fields of responses that pages may read. "*": every field.
    exposed: tuple[str, ...] = ("*",)
    max_age_s: Seconds = 7200.0  # How long browsers may remember a preflight; Chromium's maximum.
