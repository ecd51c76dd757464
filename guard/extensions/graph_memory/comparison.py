"""Difference between an answer and the authenticated one, and the authors of the difference.

Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.json_values import quoted
from guard.extensions.graph_memory.replay import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.model import Json
    from guard.extensions.graph_memory.grounding import Grounding
    from guard.extensions.graph_memory.ledger import Ledger, Writer
    from guard.extensions.graph_memory.selectors import Selector

_Group: TypeAlias = "tuple[Writer, list[int]]"
"""Numbers of some writes, and the newest of who made them."""
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
    method: str = ""
    """Method of the comparison: the name of the replayed selector, or ``dual_query``."""
    ledger: int = 0
    """Writes on record when it was replayed."""
    instead: Json = None
    """The authenticated answer itself, where the store was asked for it."""
    writer: Writer | None = None
    """Writer whose structure, removed alone, restores the authenticated order; None if there is
    none."""

    @property
    def stands(self) -> tuple[bool, ...]:
        """True for each served item whose authenticated place is at least as good as its served."""
        return standing(self.places)

    @property
    def diverged(self) -> bool:
        """Return whether an item has a better place than its authenticated one."""
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
            "road": self.method,
            "ledger": self.ledger,
            "served": _names(self.served),
            "authenticated": _names(self.authentic),
            "rose": _names([n for n, ok in zip(self.served, self.stands, strict=True) if not ok]),
            "fell": _names([n for at, (n, p) in enumerate(pairs) if p is not None and p < at]),
            "fell_out": _names([name for name in self.authentic if name not in self.served]),
            "writer": writer_document(self.writer),
        }


def _names(names: Sequence[str]) -> list[Json]:
    return [name[:NAME] for name in names[:SHOWN]]


def writer_document(writer: Writer | None) -> Json:
    """Return a writer as JSON values."""
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
    grounding: Grounding,
    found: Comparison,
    goes_on: Callable[[], bool] = lambda: True,
) -> Writer | None:
    """Return the writer whose structure, removed alone, restores the authenticated order.

    It is one call's, else all that one session wrote, else one principal's; where none restores the
    whole order, one that puts the authenticated item first again.  It is looked for by halves, so
    that many other writers hide nobody.

    Args:
        selector: of the store.
        ledger: its structure.
        grounding: what was asked.
        found: the comparison, by the names of its nodes.
        goes_on: asked before each try whether there is time for it.
    """
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    top = len(found.served)

    def without(groups: Sequence[_Group]) -> tuple[str, ...] | None:
        """Return the names of the items without some writes; None where there is no time."""
        numbers = tuple(number for _, wrote in groups for number in wrote)
        if numbers not in known:
            if not goes_on():
                return None
            gone = set(numbers)
            try:
                graph, root = ledger.without(numbers)
                asked = grounding.recall(
                    top, root, lambda node: ledger.introduced(node) not in gone
                )
                order = selector.rank(graph, asked).items
            except ValueError:
                order = ()
            known[numbers] = tuple(ledger.names[number] for number in order)
        return known[numbers]

    strangers = list(ledger.uncounted_by_writer().items())
    for length in (None, 1):
        for part in (lambda w: w, lambda w: (w.principal, w.session), lambda w: w.principal):
            writer = _culprit(_grouped(strangers, part), without, found.authentic[:length], length)
            if writer is not None:
                return writer
    return None


def _grouped(strangers: Sequence[_Group], part: Callable[[Writer], object]) -> list[_Group]:
    """Return what does not count by whose it is, newest first."""
    groups: dict[object, _Group] = {}
    for writer, numbers in strangers:
        groups.setdefault(part(writer), (writer, []))[1].extend(numbers)
    return list(groups.values())


def _culprit(
    groups: list[_Group],
    without: Callable[[Sequence[_Group]], tuple[str, ...] | None],
    wanted: tuple[str, ...],
    length: int | None,
) -> Writer | None:
    """Return whose structure alone makes the difference, looked for by halves."""

    def restores(some: Sequence[_Group]) -> bool:
        names = without(some)
        return names is not None and names[:length] == wanted

    while len(groups) > 1:
        half = len(groups) // 2
        if restores(groups[:half]):
            groups = groups[:half]
        elif restores(groups[half:]):
            groups = groups[half:]
        else:
            return None
    return groups[0][0] if groups and restores(groups) else None
