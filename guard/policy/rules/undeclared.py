"""Rule type ``undeclared``: matches calls with an argument that their mapping does not name.  Pure.

A service's mapping says what each argument of its tools is: who receives, what is said, what means
nothing to a receiver.  A tool may take more: a copy to somebody by a number, another account, a
switch that publishes or mails.  Reason code: ``argument_undeclared``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guard.core.json_values import is_empty
from guard.core.jsonpath import member_path
from guard.core.policy import Action
from guard.policy.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall, Target
    from guard.core.mappings import PathQuery
    from guard.core.model import Json
    from guard.core.policy import Reason, Situation
    from guard.policy.rules.base import PolicyOutline


class UndeclaredRule(RuleConfig):
    """Applies to a call of a mapped tool with a value that no path of its mapping selects.

    What a mapping names in ``destinations``, ``body``, ``guarded``, ``ignore``, ``inert``,
    ``reply``, ``item`` or ``named_by`` is declared, with all that is in it.  Nothing (null, a
    blank text, an empty list or object) needs no declaration; `false` and 0 do.
    """

    looks_at_guarded = False
    codes = frozenset({"argument_undeclared"})
    type: Literal["undeclared"]
    only: Literal["switches"] | None = None
    """Only values that are true or false: a switch may share, publish or send what the call is
    about; left out, a value of any kind."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason where the call says more than its mapping knows."""
        known = situation.call.classified
        if known.mapping is None:
            return None
        if _declares_all(known, switches=self.only is not None):
            return None
        detail = "an argument that the tool's mapping does not name"
        return self.reason("argument_undeclared", detail, targets)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield an error for effect `allow`: an undeclared argument never justifies it."""
        if self.effect is Action.ALLOW:
            yield "an undeclared argument is no ground to allow a call; use effect `ask` or `block`"


def _declares_all(known: ClassifiedCall, *, switches: bool) -> bool:
    """Return whether each value in a call's arguments stands at or below a declared path.

    Args:
        known: the call and its mappings; that of a memory's write declares as well.
        switches: whether to look at nothing but what is true or false.
    """
    mapping, write = known.mapping, known.memory_write
    queries: list[PathQuery | None] = []
    if mapping is not None:
        queries += (
            *mapping.destinations,
            *mapping.body,
            *mapping.arguments.guarded,
            *mapping.arguments.ignore,
        )
        queries += (
            *mapping.arguments.inert,
            mapping.reading.reply,
            mapping.item,
            mapping.reading.named_by,
        )
    if write is not None:
        queries += (*write.content, write.key, write.partition, write.target_path)
        queries += (write.nonce, write.token)
    parts = [part for query in queries if query is not None for part in query.parts or (query,)]
    arguments = dict(known.call.arguments)
    named = {path for part in parts for path, _ in part.find(arguments)}
    stack: list[tuple[str, Json]] = [("$", arguments)]
    while stack:
        path, value = stack.pop()
        if path in named:
            continue
        if isinstance(value, dict):
            stack += ((member_path(path, name), inner) for name, inner in value.items())
        elif isinstance(value, list):
            stack += ((f"{path}[{index}]", inner) for index, inner in enumerate(value))
        elif not is_empty(value) and (isinstance(value, bool) or not switches):
            return False
    return True
