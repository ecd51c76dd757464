"""The write credentials of memory stores: held by the guard, added to committed writes only.

A TOML file, one table per listener::

    ["127.0.0.1:8080"]
    header = "authorization"  # or: query = "api_key"
    prefix = "Bearer "
    secret_file = "memory.secret"  # relative to this file; or: secret = "..."

The value never enters a log, a metric, an audit line or an error, and prints as ``***``.
"""

from __future__ import annotations

import hmac
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus, urlsplit, urlunsplit

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FIELDS: Final = frozenset({"header", "query", "prefix", "secret", "secret_file"})
_SHORTEST: Final = 8


@dataclass(frozen=True, slots=True)
class WriteCredential:
    """What a store asks of a writer."""

    header: str
    """Name of the header, lower case; empty where the credential goes into the query."""
    query: str
    secret: str = field(repr=False)
    value: str = field(repr=False)
    """The secret behind its prefix, as it goes on the wire."""

    def __str__(self) -> str:
        return "***"

    def is_used_by(self, values: Iterable[str], target: str) -> bool:
        """Return whether a request brings the secret itself, wherever it stands."""
        needle = self.secret.encode()
        texts = (*values, unquote_plus(target))
        return any(
            hmac.compare_digest(text.encode("utf-8", "replace"), needle)
            or needle in text.encode("utf-8", "replace")
            for text in texts
        )

    def target(self, target: str) -> str:
        """Return the request target with the credential in its query."""
        parts = urlsplit(target)
        pair = f"{quote(self.query)}={quote(self.value, safe='')}"
        query = f"{parts.query}&{pair}" if parts.query else pair
        return urlunsplit(parts._replace(query=query))


def load_write_credentials(path: Path | None) -> dict[str, WriteCredential]:
    """Return the credentials by listener (``HOST:PORT``).

    Raises:
        GuardError: the file or a secret cannot be read, or a table is not as described above.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"write credentials file `{path}` cannot be read ({type(error).__name__})"
        raise GuardError(msg) from None
    return {name: _credential(path, name, table) for name, table in tables.items()}


def _credential(path: Path, name: str, table: object) -> WriteCredential:
    where = f"write credentials file `{path}`: listener `{name}`"
    if not isinstance(table, dict) or not table.keys() <= _FIELDS:
        msg = f"{where} needs a table of {', '.join(sorted(_FIELDS))}"
        raise GuardError(msg)
    fields: Mapping[str, object] = table
    if not all(isinstance(value, str) for value in fields.values()):
        msg = f"{where} has a field that is not a text"
        raise GuardError(msg)
    header, query = str(fields.get("header", "")), str(fields.get("query", ""))
    if bool(header) == bool(query) or not _NAME.fullmatch(header or query):
        msg = f"{where} needs a `header` or a `query` name, one of the two"
        raise GuardError(msg)
    secret = _secret(path, where, fields)
    return WriteCredential(header.lower(), query, secret, f"{fields.get('prefix', '')}{secret}")


def _secret(path: Path, where: str, fields: Mapping[str, object]) -> str:
    if ("secret" in fields) == ("secret_file" in fields):
        msg = f"{where} needs `secret` or `secret_file`, one of the two"
        raise GuardError(msg)
    if "secret" in fields:
        secret = str(fields["secret"])
    else:
        try:
            file = path.parent / str(fields["secret_file"])
            secret = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{where}: its secret file cannot be read ({type(error).__name__})"
            raise GuardError(msg) from None
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable():
        msg = f"{where}: the secret must have {_SHORTEST} printable ascii characters or more"
        raise GuardError(msg)
    return secret
