"""Keys that a service's documentation shows, where they are shown as such.  Pure: no I/O.

Everybody knows them and nobody has them.  But whoever tries how a guard reads a secret uses them,
so they are secrets as any other except where a text introduces one as an example, and in a file
whose name says that it is one.
"""

# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from guard.core.argument_texts import is_about_file

if TYPE_CHECKING:
    from guard.core.model import Json

_KNOWN: Final = (
    r"AKIAIOSFODNN7EXAMPLE|AKIAI44QH8DHBEXAMPLE|ASIAIOSFODNN7EXAMPLE"
    r"|wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY|je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY"
)
_EXAMPLE: Final = re2.compile(rf"()({_KNOWN})")
_INTRODUCED: Final = re2.compile(
    rf"(?i)(\b(?:for (?:instance|example)|e\.\s?g\.|such as|z\.\s?B\.)[\s,:]{{1,3}}[`'\"]?)({_KNOWN})"
)
_FILE: Final = re2.compile(
    r"(?i)(?:^|/)[\w.-]*\.?(?:example|sample|template|dist|tmpl)(?:\.\w{1,6})?$"
)
"""Names of files that show how another is to be written."""


def without_examples(arguments: dict[str, Json]) -> dict[str, Json]:
    """Return arguments with documented keys made unlike any, of the same length, where explained."""
    shown = is_about_file(arguments, _FILE, "file")
    local = shown and not any(name in arguments for name in ("url", "uri", "host"))
    form = _EXAMPLE if local else _INTRODUCED
    return {name: _masked(value, form) for name, value in arguments.items()}


def _masked(value: Json, form: re2._Regexp) -> Json:
    if isinstance(value, str):
        return str(form.sub(_blank, value)) if "EXAMPLE" in value else value
    if isinstance(value, dict):
        return {name: _masked(inner, form) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, form) for inner in value]
    return value


def _blank(found: re2._Match) -> str:
    return f"{found[1]}{'x' * len(found[2])}"
