"""Tenants of principals: the tables ``[tenants.NAME]`` of the credentials file.

A tenant is the principals that share what the guard remembers, in one slot of a Redis Cluster.  The
tenants are a closed list, so that what a crash has left can be looked for in all of them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from guard.core.model import DEFAULT_TENANT
from guard.core.tool_patterns import ToolPattern

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SHARDS: Final = 256
_HASHED: Final = 8
"""Bytes of a digest that a shard is drawn from."""

Pattern = Annotated[ToolPattern, BeforeValidator(ToolPattern.parse)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]


class TenantTable(BaseModel):
    """Table ``[tenants.NAME]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    principals: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Globs, or ``{re2 = "..."}``; the first table that names a principal counts."""
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """Tenants that its principals are spread over, where they share no memory with each other."""


TABLES: Final[TypeAdapter[dict[Name, TenantTable]]] = TypeAdapter(dict[Name, TenantTable])


class Tenants:
    """The tenants of a deployment.

    Args:
        tables: by name, in the file's order.
    """

    def __init__(self, tables: Mapping[str, TenantTable]) -> None:
        self._tables = tuple(tables.items())
        shards = [
            _shard(name, n) for name, x in self._tables if x.shards > 1 for n in range(x.shards)
        ]
        whole = [name for name, x in self._tables if x.shards == 1]
        self.names = tuple(dict.fromkeys((DEFAULT_TENANT, *whole, *shards)))

    def of(self, principal: str) -> str:
        """Return a principal's tenant: the same at every worker, guard and start."""
        for name, table in self._tables:
            if any(pattern.matches(principal) for pattern in table.principals):
                if table.shards == 1:
                    return name
                digest = hashlib.sha256(principal.encode("utf-8", "surrogatepass")).digest()
                return _shard(name, int.from_bytes(digest[:_HASHED], "big") % table.shards)
        return DEFAULT_TENANT


def _shard(name: str, number: int) -> str:
    # No table is called like this: its name has no dot.
    return f"{name}.{number}"
