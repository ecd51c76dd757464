"""Replays of an answer on the structure of a graph memory.  Pure: no I/O."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from guard.extensions.graph_memory.answers import documents_in
from guard.extensions.graph_memory.comparison import Comparison
from guard.extensions.graph_memory.grounding import Grounding
from guard.extensions.graph_memory.replay import UnreplayedError, replay
from guard.pipeline.selection_writes import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.calls import ToolResult
    from guard.core.mappings import PathQuery, RankedMapping
    from guard.core.model import Json
    from guard.extensions.graph_memory.answers import Ranked
    from guard.extensions.graph_memory.graph import Recall
    from guard.extensions.graph_memory.ledger import Ledger
    from guard.extensions.graph_memory.replay import SelectionReplay
    from guard.extensions.graph_memory.selectors import Selector


def is_given(query: PathQuery, result: ToolResult) -> bool:
    """Return True if an argument of the recall has a value at a path."""
    arguments = dict(result.call.call.arguments)
    return any(value not in {None, ""} for _, value in query.find(arguments))


def as_served(ranked: Ranked) -> Comparison:
    """Return the comparison of an answer that nothing uncounted can have changed."""
    return Comparison(ranked.names, ranked.names, tuple(range(len(ranked.names))))


def known_nodes(ledger: Ledger, names: Sequence[str]) -> list[int]:
    """Return the nodes of the items of an answer, as they were before any merge.

    Raises:
        UnreplayedError: one is on no record.
    """
    found = [ledger.number(name) for name in names]
    if None in found:
        raise UnreplayedError("unknown_item")
    return [number for number in found if number is not None]


def unmerged_recall(
    ledger: Ledger, mapping: RankedMapping, grounding: Grounding, known: Sequence[int]
) -> tuple[Recall, list[int]]:
    """Return the recall and its items by the nodes of the authenticated graph.

    What strangers merged or named moves neither where the authenticated walk begins nor its items.

    Raises:
        UnreplayedError: nothing that counts names a node that is asked about, or the server told
            nodes of strangers, who may then have displaced others.
    """
    own = grounding.seeds(ledger.is_authentic)
    if not own or (mapping.seeds_in_result and len(own) < len(grounding.seeds())):
        raise UnreplayedError("no_grounding")

    def root(node: int) -> int:
        return ledger.root(node, authentic=True)

    return grounding.recall(len(known), root, ledger.is_authentic), list(map(root, known))


def before_writes(  # noqa: PLR0913  (an answer, and the graph that it may come from)
    selector: Selector,
    ledger: Ledger,
    calls: Iterable[list[int]],
    found: SelectionReplay,
    unmerged: tuple[Recall, Sequence[int]],
    grounding: Grounding,
    known: Sequence[int],
) -> SelectionReplay:
    """Return the comparison with the graph before some of the writes since a question, if one is.

    Args:
        selector: of the store.
        ledger: its structure.
        calls: writes of each call since then, the newest first.
        found: the comparison with the graph as it is.
        unmerged: as for :func:`replay`.
        grounding: what was asked.
        known: the items of the answer, by nodes as they were before any merge.

    Raises:
        ValueError: the selector cannot rank it.
    """
    late: list[int] = []
    for numbers in calls:
        late += numbers
        gone = set(late)
        full, root = ledger.without(late)
        recall = grounding.recall(len(known), root, partial(_is_there, ledger, gone))
        before = replay(
            selector, full, ledger.authentic, recall, list(map(root, known)), unmerged=unmerged
        )
        if before.faithful:
            return before
    return found


def _is_there(ledger: Ledger, gone: set[int], node: int) -> bool:
    """Return whether a node was named before some writes that are left out."""
    return ledger.introduced(node) not in gone


def grounding_of(mapping: RankedMapping, result: ToolResult, ledger: Ledger) -> Grounding:
    """Return what the selection of an answer begins with.

    Raises:
        UnreplayedError: nothing names a node of the ledger, or nobody can say what does.
    """
    if mapping.seeds is None:
        raise UnreplayedError("no_grounding")
    documents: Sequence[Json] = [dict(result.call.call.arguments)]
    if mapping.seeds_in_result:
        documents = documents_in(result.content)
    texts = [
        name
        for root in documents
        for _, value in mapping.seeds.find(root)
        for name in names_in(value)
    ]
    found = Grounding(ledger, tuple(texts), mapping.names_in_text)
    if not found.seeds():
        raise UnreplayedError("no_grounding")
    return found
