"""``guard import-openapi``: propose HTTP tools from an OpenAPI 3 document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from guard.core.errors import GuardError, MessageError
from guard.core.model import Role
from guard.policy_files.openapi import Proposal, ProposedTool, propose
from guard.protocols.framing.strict_json import parse_json

EXIT_INVALID = 3
MAX_BYTES: Final = 16 * 1024 * 1024
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def import_openapi(
    file: Annotated[Path, typer.Argument(help="An OpenAPI 3 document, JSON or YAML.")],
    server: Annotated[
        str | None, typer.Option(help="Base URL; the document's first server if unset.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the proposed policy file.")] = "http-tools",
) -> None:
    """Print a policy file that maps the document's operations to tools, for you to review.

    It has no rules: give it to the guard together with your policy.  Exit code 3: invalid input.
    """
    try:
        proposal = propose(_document(file), server)
        if not proposal.tools:
            raise GuardError("the document has no operation that can be a tool")
    except (GuardError, OSError) as error:
        typer.echo(f"guard import-openapi: {file}: {error}", err=True)
        raise typer.Exit(EXIT_INVALID) from None
    for warning in proposal.warnings:
        typer.echo(f"{file}: {warning}", err=True)
    for line in _lines(proposal, name):
        print(line)


def _document(path: Path) -> Any:
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise GuardError(f"there is no such file, or it is larger than {MAX_BYTES} bytes")
    data = path.read_bytes()
    try:
        if data.lstrip()[:1] == b"{":
            return parse_json(data)
        # Refuses duplicate keys and builds nothing but plain values.
        return YAML(typ="safe", pure=True).load(data)
    except MessageError as error:
        raise GuardError(str(error).replace("the body", "the document")) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise GuardError(f"this is not YAML: {type(error).__name__}") from error


def _lines(proposal: Proposal, name: str) -> Iterator[str]:
    yield "# Proposed by `guard import-openapi`.  Roles and destinations are guesses: read each."
    yield "version: 1"
    yield f"name: {_scalar(name)}"
    yield "http_tools:"
    for tool in proposal.tools:
        more = f", body: {tool.body}" if tool.body != "none" else ""
        more += f", repeat: {_list(tool.repeat)}" if tool.repeat else ""
        yield f"  # {_comment(tool.summary)}"
        head = f"tool: {_scalar(tool.tool)}, method: [{tool.method}], url: {json.dumps(tool.url)}"
        yield f"  - {{{head}{more}}}"
    yield "tools:"
    for role in (Role.RETRIEVE, Role.OTHER):
        names = [tool.tool for tool in proposal.tools if tool.role is role]
        if names:
            yield f"  - match: {_list(names)}"
            review = "" if role is Role.RETRIEVE else "  # review: is one of them a send or a save?"
            yield f"    role: {role.value}{review}"
    for tool in proposal.tools:
        if tool.role is Role.SEND:
            yield from _send(tool)


def _send(tool: ProposedTool) -> Iterator[str]:
    yield f"  - match: [{_scalar(tool.tool)}]"
    yield "    role: send"
    yield f"    destinations: {_list(tool.destinations)}"


def _list(items: Any) -> str:
    return f"[{', '.join(_scalar(item) for item in items)}]"


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text)


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
