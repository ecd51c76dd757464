"""Problems of services: directories of handles that vouch in no send, or in too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import PolicyProblem
from guard.core.labels import VOUCHING
from guard.core.model import Role
from guard.policy.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.mappings import ResultField, ToolMapping
    from guard.policy.schema import PolicyFile, ToolEntry
    from guard.policy.yaml_loader import Location

_SEVERAL: Final = 2


def unknown_services(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield each name in `for` that is not a service and no server of the policy."""
    known = {name for file in files for name in _named(file)}
    for file in files:
        for place, entry in file.content.mappings():
            for index, field in enumerate(entry.fields):
                for name in field.serves:
                    if name not in known:
                        message = f"no tool is of a service or server `{name}`"
                        line = file.source.line((*place, "fields", index, "for"))
                        message += suggestion(name, known)
                        yield PolicyProblem(file.source.path, line, message)


def _named(file: PolicyFile) -> Iterator[str]:
    """Yield the services and servers that a file names."""
    yield file.content.service or ""
    yield from (server.name for server in file.content.servers)
    yield from (entry.service or "" for _, entry in file.content.mappings())


def unserved(
    declared: Sequence[tuple[PolicyFile, Location, ToolEntry]], tools: Sequence[ToolMapping]
) -> Iterator[PolicyProblem]:
    """Yield directories of handles that no send of their service can use: warnings, no errors.

    A directory of a service that the policy does not name is as well, where it is not the only one.

    Args:
        declared: the mappings as they are written, each with its file and place.
        tools: the same mappings, compiled.
    """
    sends = {(one.server, one.service) for one in tools if one.role is Role.SEND}
    nameless = [one for one in tools if not (one.server or one.service) and _holds_handles(one)]
    for (file, place, _), mapping in zip(declared, tools, strict=True):
        if file.inherited or not _holds_handles(mapping):
            continue
        line = file.source.line((*place, "fields"))
        if sends and (mapping.server, mapping.service) not in sends:
            message = (
                f"`{mapping.pattern}` holds accounts, channels or other ids for which no send of "
                "its own service is mapped: name the services that take them in `for`, or say "
                "`kinds` without `handle`"
            )
            yield PolicyProblem(file.source.path, line, message)
        elif mapping in nameless and len(nameless) >= _SEVERAL:
            message = (
                f"`{mapping.pattern}` holds accounts, channels or other ids of no named service: "
                "they may receive in every send of its server; write `service: NAME`"
            )
            yield PolicyProblem(file.source.path, line, message)


def _holds_handles(mapping: ToolMapping) -> bool:
    return any(map(_is_bound, mapping.fields))


def _is_bound(field: ResultField) -> bool:
    """Return whether a field vouches for handles in its own service alone."""
    of_handles = not field.kinds or "handle" in field.kinds
    return field.channel in VOUCHING and of_handles and not field.serves
