"""MCP servers in the configuration files of MCP clients: Claude Desktop, Cursor, VS Code.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.errors import GuardError, MessageError
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where clients keep their servers: Claude Desktop and Cursor; VS Code's mcp.json; its settings."""


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """One server of a client: reached at a URL, or started as a command."""

    name: str
    url: str = ""
    transport: str = "http"
    """``http``, ``sse`` or ``stdio``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def read_client_config(text: bytes) -> list[ConfiguredServer]:
    """Return the servers of a configuration file.

    Raises:
        GuardError: it is not JSON, or no client's configuration.
    """
    try:
        document = parse_json(text)
    except MessageError as error:
        hint = str(error).replace("the body", "the configuration")
        raise GuardError(f"{hint}; comments have to go") from error
    for place in PLACES:
        found = document
        for step in place:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return [_server(str(name), entry) for name, entry in found.items()]
    raise GuardError("there is neither `mcpServers` nor `servers` in it")


def _server(name: str, entry: Json) -> ConfiguredServer:
    if not isinstance(entry, dict):
        raise GuardError(f"server `{name}` is not an object")
    url, command = entry.get("url") or entry.get("serverUrl"), entry.get("command")
    if isinstance(url, str) and urlsplit(url).scheme in {"http", "https"}:
        kind = "sse" if entry.get("type") == "sse" or entry.get("transport") == "sse" else "http"
        return ConfiguredServer(name, url, kind, headers=_texts(entry.get("headers")))
    if isinstance(command, str):
        words = entry.get("args")
        arguments = tuple(map(str, words)) if isinstance(words, list) else ()
        environment = _texts(entry.get("env"))
        return ConfiguredServer(
            name, "", "stdio", command=(command, *arguments), environment=environment
        )
    raise GuardError(f"server `{name}` has neither a `url` nor a `command`")


def _texts(value: Json) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
