"""Selector and parameters of a store, found from its recorded answers.  Pure: no I/O.

Every combination of the values that a selector declares is tried, and given up as soon as it has
missed more answers than the best one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from guard.extensions.graph_memory.replay import is_order
from guard.extensions.graph_memory.selectors import discover_selectors, selector_from

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from guard.extensions.graph_memory.graph import Graph, Recall

NUMBERS: Final = frozenset({"damping", "resolution"})
"""Parameters of which a range of values may give the same answers."""
SELDOM: Final = frozenset({"tolerance", "personalization", "iterations", "objective"})
"""Parameters whose other values are tried only where an answer is missed without."""
HELD_OUT: Final = 10
"""Answers from which every second one is kept to measure the fidelity on."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One question to a store, and the items that it answered, best first."""

    recall: Recall
    served: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A selector with the parameters under which its answers are most like the store's."""

    selector: str
    parameters: dict[str, object]
    """Values that are not the default."""
    fidelity: float
    """Share of the answers it was measured on that it gave alike."""
    answers: int
    """Answers that the fidelity was measured on: not those of the fit, where there are enough."""
    possible: float = 0.0
    """Items per answer that it would have let pass: the fewer, the more its agreement says."""


@dataclass(slots=True)
class _Trial:
    """Answers that one selector with some parameters gave alike."""

    parameters: dict[str, object]
    missed: int
    possible: float


def fit(
    graph: Graph, answers: Sequence[RecordedAnswer], only: Collection[str] = ()
) -> list[Fitted]:
    """Return the best parameters of each selector, the selector of the greatest fidelity first.

    Args:
        graph: of the store, when it gave the answers.
        answers: that it gave.
        only: selectors that are tried; empty for every one whose packages are installed.
    """
    halves = len(answers) >= HELD_OUT
    train, test = (answers[::2], answers[1::2]) if halves else (answers, answers)
    found: list[Fitted] = []
    for name, selector in sorted(discover_selectors().items()):
        if only and name not in only:
            continue
        try:
            first = {k: v if k not in SELDOM else v[:1] for k, v in selector.parameters.items()}
            best = _best(name, graph, train, _grid(first))
            if best.missed:
                best = _best(name, graph, train, _grid(selector.parameters))
        except ImportError:
            continue
        measured = _tried(name, graph, test, best.parameters, len(test))
        found.append(
            Fitted(
                name,
                {
                    one: value
                    for one, value in best.parameters.items()
                    if value != selector.parameters[one][0]
                },
                1 - measured.missed / len(test) if test else 0.0,
                len(test),
                measured.possible,
            )
        )
    found.sort(key=lambda one: (-one.fidelity, one.possible, len(one.parameters)))
    return found


def _grid(parameters: Mapping[str, tuple[object, ...]]) -> Iterator[dict[str, object]]:
    for values in product(*parameters.values()):
        yield dict(zip(parameters, values, strict=True))


def _best(
    name: str,
    graph: Graph,
    answers: Sequence[RecordedAnswer],
    grid: Iterable[dict[str, object]],
) -> _Trial:
    """Return the trial with the fewest misses, of such the one that would let the fewest pass.

    Of a range of numbers that do equally well the middle is taken.
    """
    found: list[_Trial] = []
    most = len(answers)
    for parameters in grid:
        found.append(_tried(name, graph, answers, parameters, most))
        most = min(most, found[-1].missed)
    best = min(found, key=lambda one: (one.missed, one.possible))
    level = [one for one in found if one.missed == most and _others(one) == _others(best)]
    level.sort(key=lambda one: [str(value) for value in one.parameters.values()])
    return level[len(level) // 2]


def _others(trial: _Trial) -> dict[str, object]:
    return {name: value for name, value in trial.parameters.items() if name not in NUMBERS}


def _tried(
    name: str,
    graph: Graph,
    answers: Sequence[RecordedAnswer],
    parameters: dict[str, object],
    most: int,
) -> _Trial:
    """Return the answers that a selector misses, counted up to one more than ``most``."""
    selector = selector_from(name, parameters)
    missed = seen = 0
    possible = 0.0
    for answer in answers:
        seen += 1
        try:
            ranking = selector.rank(graph, answer.recall)
        except (ValueError, ZeroDivisionError):
            missed += 1
        else:
            missed += not is_order(answer.served, ranking)
            possible += len(ranking.items) + len(ranking.level)
        if missed > most:
            break
    return _Trial(parameters, missed, possible / max(1, seen))
