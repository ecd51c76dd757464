"""Rule type ``result``: withholds results by what stands in them.  Pure: no I/O.

It says nothing about calls.  A result that it concerns is not released: the agent is told so
instead, and a text that instructs models has instructed nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.content.injection_text import LIMIT, instructs
from guard.content.tool_definitions import definitions_in, steers
from guard.core.argument_texts import argument_texts
from guard.core.policy import Action
from guard.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall, Target
    from guard.core.model import Json
    from guard.core.policy import Reason, Situation
    from guard.rules.base import PolicyOutline

INJECTION: Final = "injection_in_result"
OVERFLOW: Final = "result_too_large"


class ResultRule(RuleConfig):
    """Applies to a result that has something of what ``finds`` names, or is too large to tell."""

    looks_at_guarded = False
    codes = frozenset({INJECTION, OVERFLOW})
    type: Literal["result"]
    finds: Annotated[
        tuple[Literal["injection_text"], ...],
        Field(min_length=1, description="What to search results for: `injection_text`."),
    ] = ("injection_text",)

    def match(self, situation: Situation) -> Reason | None:  # noqa: ARG002  (a rule about results)
        """Return None: calls are none of its business."""
        return None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:  # noqa: ARG002  (as above)
        """Return None, as for :meth:`match`."""
        return None

    def match_result(self, call: ClassifiedCall, content: Json) -> Reason | None:
        """Return why a result must not be released, or None.  May raise: then it is withheld."""
        if not self.filters_match(call):
            return None
        texts = tuple(item.text for item in argument_texts(content))
        if sum(map(len, texts)) > LIMIT:
            return self.reason(OVERFLOW, f"the result has more than {LIMIT} characters", ())
        if any(instructs(text, deep=True) for text in texts):
            return self.reason(INJECTION, "the result instructs a model", ())
        if any(map(steers, definitions_in(content))):
            return self.reason(INJECTION, "the definition steers a model to something else", ())
        return None

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield effects that a result cannot have, and filters that concern calls."""
        if self.effect is not Action.BLOCK:
            yield "a result is withheld or released; use effect `block`"
        if self.status is not None or self.rungs is not None:
            yield "a result has no destinations; remove `status` and `rungs`"
