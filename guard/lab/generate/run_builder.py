"""Builds one run in trace format v1, with the ground truth of each call beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.replay.traces import Run, parse_run

if TYPE_CHECKING:
    from guard.core.model import Json

STEP_SECONDS: Final = 20.0
START: Final = 1_760_000_000.0
"""When a run's clock begins; any fixed moment does, as every run has a state of its own."""


@dataclass(slots=True)
class RunBuilder:
    """One run as it grows.

    Attributes:
        name: the run's id.
        principal: the owner of its memory.
        kind: what the run shows, as the evaluation groups by it.
    """

    name: str
    kind: str
    principal: str = ""
    agent: str | None = None
    """The agent that makes the next calls, where the run has several."""
    _prompts: list[dict[str, Json]] = field(default_factory=list)
    _calls: list[dict[str, Json]] = field(default_factory=list)
    _attack: list[int] = field(default_factory=list)
    _own: list[int] = field(default_factory=list)
    _at: float = START

    def prompt(self, session: str, text: str) -> None:
        """Add what the user typed in a session."""
        self._prompts.append({"session": session, "text": text})

    def call(self, session: str, tool: str, args: dict[str, Json], result: Json = None) -> int:
        """Add a call that is neither the attacker's send nor the user's; return its index."""
        index = len(self._calls)
        self._at += STEP_SECONDS
        call: dict[str, Json] = {
            "i": index,
            "ts": self._at,
            "session": session,
            "tool": tool,
            "args": args,
            "result": result,
        }
        if self.agent is not None:
            call["agent"] = self.agent
        self._calls.append(call)
        return index

    def attack(self, session: str, tool: str, args: dict[str, Json]) -> None:
        """Add the send that must be stopped."""
        self._attack.append(self.call(session, tool, args, '{"status": "sent"}'))

    def own(self, session: str, tool: str, args: dict[str, Json]) -> None:
        """Add a send that the user wants."""
        self._own.append(self.call(session, tool, args, '{"status": "sent"}'))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._at += seconds

    def document(self, **labels: Json) -> dict[str, Json]:
        """Return the run with its labels."""
        truth = {"kind": self.kind, "attack_calls": self._attack, "own_calls": self._own}
        owner = {"principal": self.principal} if self.principal else {}
        return {
            "run_id": self.name,
            **owner,
            "prompts": self._prompts,
            "calls": self._calls,
            "labels": truth | labels,
        }


def as_run(document: dict[str, Json]) -> Run:
    """Return a document as the reader of trace files would.

    Raises:
        TraceError: the document is no trace.
    """
    return parse_run(json.dumps(document).encode("utf-8"))
