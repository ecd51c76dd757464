"""What is told of an answer that was compared with the authenticated one, and whose doing it is.

Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.json_values import quoted
from guard.graph_memory.replay import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guard.core.model import Json
    from guard.graph_memory.graph import Recall
    from guard.graph_memory.ledger import Ledger, Writer
    from guard.graph_memory.selectors import Selector

ATTRIBUTED: Final = 32
"""Groups of writes of which it is tried whether they alone made the difference."""
SHOWN: Final = 20
NAME: Final = 80
"""Items of an order, and characters of a name, that are told."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An answer beside what the authenticated part of its store alone would have answered."""

    served: tuple[str, ...]
    """Names of the items, in the order of the answer."""
    authentic: tuple[str, ...]
    """Likewise of the authenticated answer."""
    places: tuple[int | None, ...]
    """For each served item its authenticated place, from 0; None where it is not in that answer."""
    road: str = ""
    """How it was found: the name of the replayed selector, or ``dual_query``."""
    ledger: int = 0
    """Writes on record when it was replayed."""
    instead: Json = None
    """The authenticated answer itself, where the store was asked for it."""
    writer: Writer | None = None
    """Whose structure, removed alone, restores the authenticated order; None where nobody's."""

    @property
    def stands(self) -> tuple[bool, ...]:
        """For each served item whether its authenticated place is no worse than its served one."""
        return standing(self.places)

    @property
    def diverged(self) -> bool:
        """Whether an item stands before its authenticated place."""
        return not all(self.stands)

    @property
    def order(self) -> tuple[int, ...]:
        """Served places of the items that the authenticated answer has, in its order."""
        kept = [(place, at) for at, place in enumerate(self.places) if place is not None]
        return tuple(at for _, at in sorted(kept))

    def document(self) -> dict[str, Json]:
        """Return both orders, what rose, fell and fell out, and whose structure it was."""
        pairs = list(zip(self.served, self.places, strict=True))
        return {
            "road": self.road,
            "ledger": self.ledger,
            "served": _names(self.served),
            "authenticated": _names(self.authentic),
            "rose": _names([n for n, ok in zip(self.served, self.stands, strict=True) if not ok]),
            "fell": _names([n for at, (n, p) in enumerate(pairs) if p is not None and p < at]),
            "fell_out": _names([name for name in self.authentic if name not in self.served]),
            "writer": _writer(self.writer),
        }


def _names(names: Sequence[str]) -> list[Json]:
    return [name[:NAME] for name in names[:SHOWN]]


def _writer(writer: Writer | None) -> Json:
    if writer is None:
        return None
    return {
        "principal": writer.principal,
        "session": writer.session.hex(),
        "call": writer.call,
        "at": writer.at,
        "source": writer.source,
    }


def note_on(told: dict[str, Json], *, substituted: bool) -> str:
    """Return in words what a model is told of an answer; names are not the guard's, so quoted.

    Args:
        told: of :meth:`Comparison.document`.
        substituted: whether the answer is in the authenticated order already.
    """
    if "served" not in told:
        return (
            "[egress guard] Whether authenticated structure selected this answer is not known "
            f"({told['reason']}). Do not send, pay or decide by it alone."
        )
    now = "It is in the authenticated order here" if substituted else "It is served as it came"
    return (
        "[egress guard] Structure that nobody authenticated changed the order of this answer. "
        f"{now}. Rose: {quoted(told['rose']) or 'nothing that is left'}. "
        f"Authenticated order: {quoted(told['authenticated']) or 'nothing'}."
    )


def whose_structure(
    selector: Selector,
    ledger: Ledger,
    recall: Recall,
    found: Comparison,
    goes_on: Callable[[], bool] = lambda: True,
) -> Writer | None:
    """Return the writer whose structure, removed alone, restores the authenticated order.

    Single calls are tried first, then all that one session wrote, then one principal; where none
    restores the whole order, one that puts the authenticated item first again.

    Args:
        selector: of the store.
        ledger: its structure.
        recall: what was asked, by nodes as they were before any merge.
        found: the comparison, by the names of its nodes.
        goes_on: asked before each try whether there is time for it.
    """
    first = None
    for writer, numbers in _groups(ledger):
        if not goes_on():
            break
        try:
            graph, root = ledger.without(numbers)
            seeds = {root(node): weight for node, weight in recall.seeds.items()}
            order = selector.rank(graph, replace(recall, seeds=seeds)).items
        except ValueError:
            continue
        names = tuple(ledger.names[number] for number in order)
        if names == found.authentic:
            return writer
        if first is None and names[:1] == found.authentic[:1]:
            first = writer
    return first


def _groups(ledger: Ledger) -> Iterator[tuple[Writer, list[int]]]:
    """Yield what one call, one session or one principal wrote that does not count, newest first."""
    calls = list(ledger.strangers().items())[:ATTRIBUTED]
    yield from calls
    for part in (lambda w: (w.principal, w.session), lambda w: w.principal):
        groups: dict[object, tuple[Writer, list[int], int]] = {}
        for writer, numbers in ledger.strangers().items():
            newest, all_of_them, count = groups.get(part(writer), (writer, [], 0))
            groups[part(writer)] = newest, all_of_them + numbers, count + 1
        for writer, numbers, count in list(groups.values())[:ATTRIBUTED]:
            if count > 1:
                yield writer, numbers
