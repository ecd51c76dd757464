"""Actions, reasons and verdicts.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json


class Action(IntEnum):
    """What happens to a call.  The greater wins: block > ask > redact > allow.

    There is no default value and none may be added: whoever builds a verdict says which.
    """

    ALLOW = 0
    REDACT = 1
    ASK = 2
    BLOCK = 3

    @property
    def label(self) -> str:
        """The name used in policies, audit lines and metrics."""
        return _LABELS[self]

    @property
    def forwards(self) -> bool:
        """Whether the call (as it is, or redacted) goes to the tool."""
        return self <= Action.REDACT


_LABELS = tuple(action.name.lower() for action in Action)


class Mode(StrEnum):
    """Whether a verdict is carried out or only recorded."""

    ENFORCE = "enforce"
    MONITOR = "monitor"


@frozen
class Reason:
    """Why a verdict is what it is: one rule that matched, or one error."""

    code: str
    """From a closed set: the reason's kind, e.g. ``destination_external``, ``rule_error``."""
    rule: str
    """Id of the rule, empty for what the guard decides without a rule."""
    action: Action
    detail: str = ""
    """For the audit and the agent; never argument text, never the contents of a list."""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    remedy: str = ""
    """The kind of step that would help, for the agent."""


@frozen
class Verdict:
    """The answer of the PDP to one call."""

    action: Action
    mode: Mode
    reasons: tuple[Reason, ...]
    """Every rule that matched, the winning action's first."""
    policy: str
    """Digest of the policy that was asked."""
    errors: tuple[str, ...] = ()
    """What went wrong on the way; any error makes the action a block."""
    score: float | None = None
    """The prefix classifier's score where it was evaluated."""
    decided_by: tuple[str, ...] = ()
    """Ids of the rules whose effect is the action."""

    def blocked(self, reason: Reason, *errors: str) -> Verdict:
        """Return it as a block for one more reason."""
        return replace(
            self,
            action=Action.BLOCK,
            reasons=(reason, *self.reasons),
            errors=(*self.errors, *errors),
            decided_by=(),
        )

    @property
    def enforced(self) -> Action:
        """What the PEP carries out: in monitor mode everything passes, and is recorded."""
        return Action.ALLOW if self.mode is Mode.MONITOR else self.action

    @property
    def would_have_blocked(self) -> bool:
        """Whether monitor mode let through what enforce mode would have refused."""
        return self.mode is Mode.MONITOR and not self.action.forwards


def worst(actions: tuple[Action, ...]) -> Action:
    """Return the action that wins; nothing to choose from is a block."""
    return max(actions, default=Action.BLOCK)
