"""The errors of the guard.

::

    GuardError
    ├── InputError           an option, a file or a document that the operator gave cannot be used
    │   ├── PolicyError      a policy file cannot be used (position, rule id, suggestion)
    │   └── TraceError       a recorded run cannot be read (guard.replay.traces)
    ├── MessageError         a message cannot be read one way only
    │   └── OversizeError    a message is larger than the limit
    ├── StateError           the session store did not answer, or answered nonsense
    ├── ModelError           a model artefact is missing, altered or does not fit
    └── AuditError           the audit line could not be written

Messages follow one style: lower case, no final period, user input in backticks, and what to do.
"""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from enum import Enum


class GuardError(Exception):
    """Base of every error the guard raises on purpose."""


class InputError(GuardError):
    """Unusable input of the operator; a command then exits with 3, not with 1."""


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """One thing wrong with a policy file."""

    path: str
    """The file, as the user named it."""
    line: int
    """One-based line, 0 where the file as a whole is meant."""
    message: str
    """Problem, and its fix."""
    rule: str | None = None
    """The id of the rule it concerns, if any."""

    def __str__(self) -> str:
        rule = f" rule `{self.rule}`:" if self.rule else ""
        return f"{self.path}:{self.line}:{rule} {self.message}"


class PolicyError(InputError):
    """A policy that must not be used.

    Attributes:
        problems: every problem found, in file order; never empty.
    """

    def __init__(self, problems: tuple[PolicyProblem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class Fate(Enum):
    """Fate of a request that is refused, or whose answer is, by the origin of the refusal."""

    NOT_SENT = "not_sent"
    """Refused on the way out: the tool does not know of it."""
    WITHHELD = "result_withheld"
    """Refused on the way back: the tool has answered."""
    UNKNOWN = "unknown"
    """Sent, and no answer to it came: the tool may have carried it out."""


class MessageError(GuardError):
    """A message that cannot be read one way only, and is therefore refused.

    Attributes:
        code: a stable reason code from a closed set (it becomes a metric label).
        status: the HTTP status an HTTP client is answered with.
        retry_after: seconds after which the same message may succeed; 0 where nobody can tell.
        fate: what became of the request.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        retry_after: int = 0,
        fate: Fate = Fate.NOT_SENT,
    ) -> None:
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.fate = fate
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process makes the same error."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class OversizeError(MessageError):
    """A body beyond the limit, before or after decoding."""

    def __init__(self, message: str) -> None:
        super().__init__("body_too_large", message, status=413)


class StateError(GuardError):
    """The session store did not answer in time, or answered what it must not."""


class ModelError(GuardError):
    """A model artefact that is missing, altered or does not fit the features."""


class AuditError(GuardError):
    """The audit line of a decision could not be written."""
