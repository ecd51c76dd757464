"""The operator's checker of memory writes: a command that is asked about each, and must agree.

It gets one JSON object on standard input (decision id, principal, tool, store, class, source types
and the texts) and commits by ending with exit code 0.  Anything else refuses the write: another
code, a signal, a command that does not start or does not end in time.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.memory import Candidate, MemoryClass

SECONDS: Final = 5.0


class CommandChecker:
    """Asks a command.

    Args:
        command: program and arguments.
        environment: of the command; nothing of the guard's own.
        seconds: how long it may take.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._seconds = seconds

    async def __call__(self, candidate: Candidate, target: MemoryClass) -> bool:
        """Return whether the command agrees."""
        question = {
            "decision_id": candidate.id,
            "principal": candidate.identity.principal,
            "tool": candidate.tool,
            "store": candidate.store,
            "class": target.name,
            "source_types": sorted(kind.value for kind in candidate.evidence.types),
            "texts": [*candidate.texts, *candidate.further],
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
            )
        except OSError:
            return False
        try:
            async with asyncio.timeout(self._seconds):
                await process.communicate(json.dumps(question).encode())
        except (OSError, TimeoutError):
            return False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode == 0
