"""Structure that a save writes into a graph memory, and its writer."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from guard.core.model import Integrity, PrincipalRung
from guard.extensions.graph_memory.ledger import Change, Write, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.calls import TracedCall
    from guard.core.mappings import PartitionMapping, SelectionPolicy, StructureMapping
    from guard.core.model import Json
    from guard.provenance.seal import Seal

USER: Final = "user_input"
READ: Final = "tool_result"
INFERRED: Final = "model_inference"
PARTITION_KEY: Final = 48
"""Characters by which partitions are told apart: a store may cut a longer name."""


def counts(selection: SelectionPolicy, writer: Writer) -> bool:
    """Return whether a writer's structure is authenticated under a policy."""
    if selection.principals and writer.principal not in selection.principals:
        return False
    if selection.sources and writer.source not in selection.sources:
        return False
    return writer.label >= selection.label


def writer_of(seal: Seal, call: TracedCall, at: float) -> Writer:
    """Return through which channel a save came: who, and what its text was made of.

    All unauthenticated traffic of a listener is one principal, and that has no name here.
    """
    identity, saved = call.call.identity, call.saved
    label = saved.label if saved is not None else Integrity.UNTRUSTED
    source = READ if label is Integrity.UNTRUSTED else INFERRED
    if saved is not None and saved.prompted:
        source = USER
    known = identity.principal_rung is not PrincipalRung.ANONYMOUS
    return Writer(
        identity.principal if known else "", seal.session(identity), call.index, at, source, label
    )


def changes_of(
    mappings: Sequence[StructureMapping], tool: str, arguments: Json, writer: Writer
) -> Iterator[Write]:
    """Yield the structural writes of a call, in the order of the mappings."""
    for mapping in mappings:
        if mapping.matches(tool):
            for _, value in mapping.each.find(arguments):
                yield from _changes(mapping, value, writer)


def _changes(mapping: StructureMapping, value: Json, writer: Writer) -> Iterator[Write]:
    members = value if isinstance(value, dict) else {}
    ones = names_in(members.get(mapping.one)) if mapping.one else names_in(value)
    twos = names_in(members.get(mapping.two)) if mapping.two else [""]
    weight = members.get(mapping.weight, 1.0) if mapping.weight else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        weight = float("nan")
    for one in ones:
        for two in twos:
            yield Write(
                Change[mapping.change.upper()],
                one,
                two,
                "".join(names_in(members.get(mapping.relation))) if mapping.relation else "",
                float(weight),
                mapping.item,
                writer,
                tuple(names_in(members.get(mapping.parents))) if mapping.parents else (),
            )


def derivations_of(seal: Seal, selection: SelectionPolicy, call: TracedCall) -> list[Write]:
    """Return the records of a write from whose content the store derives structure by itself."""
    asked = call.call
    keys = partition_keys(selection.derives, asked.tool, dict(asked.arguments))
    if keys is None:
        return []
    if selection.namespaces is not None and asked.server in selection.namespaces.servers:
        keys = {partition_key(selection.namespaces.default + selection.namespaces.suffix)}
    writer, mark = writer_of(seal, call, asked.at), reader_mark(seal, call)
    return [Write(Change.DERIVE, key, mark, writer=writer) for key in sorted(keys or {""})]


def reader_mark(seal: Seal, call: TracedCall) -> str:
    """Return the mark of a principal, by which its own content is known again."""
    return seal.principal(call.call.identity).hex()


def partition_keys(
    mappings: Sequence[PartitionMapping], tool: str, arguments: Json
) -> set[str] | None:
    """Return the keys of the partitions that a call names, empty for every one.

    Returns:
        None where no mapping is about the tool.
    """
    found = [one for one in mappings if one.matches(tool)]
    if not found:
        return None
    keys: set[str] = set()
    for one in found:
        values = [] if one.partition is None else [v for _, v in one.partition.find(arguments)]
        names = [name for value in values for name in names_in(value)]
        if not names or len(names) < len(values):
            return set()
        keys.update(map(partition_key, names))
    return set() if "" in keys else keys


def partition_key(name: str) -> str:
    """Return a partition as it is compared: a store may fold its name, or cut it."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(filter(str.isalnum, text))[:PARTITION_KEY]


def names_in(value: Json) -> list[str]:
    """Return the names in a member: a single name, or a list."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]
