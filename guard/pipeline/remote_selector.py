"""A selector of communities that runs in another process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from guard.extensions.graph_memory.graph import Graph
from guard.extensions.graph_memory.selectors import selector_from
from guard.extensions.graph_memory.selectors.base import CommunitySelector

if TYPE_CHECKING:
    import numpy as np

    from guard.core.mappings import SelectionPolicy
    from guard.extensions.graph_memory.selectors import Selector
    from guard.pipeline.large_work import RunsElsewhere


def selector_of(selection: SelectionPolicy, runs: RunsElsewhere | None) -> Selector:
    """Return the selector of a store; one of communities works in another process.

    Args:
        selection: of the store.
        runs: runs a function in another process; None works here.
    """
    selector = selector_from(selection.selector, dict(selection.parameters))
    if runs is None or not isinstance(selector, CommunitySelector):
        return selector
    return RemoteSelector(selector, runs, selection.deadline)


class RemoteSelector(CommunitySelector):
    """A selector that finds communities in another process; used in a thread.

    Args:
        selector: of the store.
        apart: runs it there.
        seconds: longest wait.
    """

    def __init__(self, selector: CommunitySelector, apart: RunsElsewhere, seconds: float) -> None:
        self.name = selector.name  # type: ignore[misc]
        self._selector, self._run, self._seconds = selector, apart, seconds
        self._loop = asyncio.get_running_loop()

    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community.

        Raises:
            TimeoutError: it took too long.
        """
        bare = Graph(graph.size, graph.items, graph.source, graph.target, graph.weight)
        work = asyncio.run_coroutine_threadsafe(self._of(bare), self._loop)
        found: np.ndarray = work.result(self._seconds)
        return found

    @property
    def key(self) -> tuple[object, ...]:
        """Key of the wrapped selector."""
        return self._selector.key

    async def _of(self, graph: Graph) -> np.ndarray:
        found: np.ndarray = await self._run(self._selector.membership, graph)
        return found
