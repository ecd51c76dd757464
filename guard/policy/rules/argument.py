"""Rule type ``argument``: matches calls by the value of one argument.  Pure: no I/O.

Reason codes: ``argument`` (a value passes or, negated, fails the test), ``argument_missing`` (a
negated test that found no value).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import filterfalse
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from guard.core.json_values import is_empty, parts_of
from guard.core.policy import Action, FolderRule, Reason, Situation
from guard.core.tool_patterns import ToolPattern, any_pattern
from guard.policy.field_types import PathText, text_as
from guard.policy.rules.base import PolicyOutline, RuleConfig
from guard.provenance.ladder import is_covered

if TYPE_CHECKING:
    from guard.core.calls import Target, TracedCall
    from guard.core.model import Json

VALUE_LIMIT: Final = 10_000
"""Values one rule tests; a call with more cannot be judged, and is refused."""

Scalar = str | int | float | bool | None


Glob = Annotated[
    ToolPattern,
    PlainValidator(
        text_as("a glob is a text such as `report-*`", ToolPattern.parse),
        json_schema_input_type=str,
    ),
    PlainSerializer(lambda p: p.text),
]
Re2 = Annotated[
    ToolPattern,
    PlainValidator(lambda value: ToolPattern.parse({"re2": value}), json_schema_input_type=str),
    PlainSerializer(lambda p: p.text),
]


class ArgumentRule(RuleConfig):
    """Applies to a call by the values that a JSONPath selects in its arguments.

    Give one test, or ``min`` and ``max`` together.  A restricting rule applies if *any* selected
    value passes it; with ``negate``, if any fails it or none is there.  An allowing rule applies
    only if values are there and *all* pass (negated: all fail).  A list or object that is selected
    stands for the values in it.  Null, a blank text and an empty list or object do not count as
    values: like a member that is left out, they pass only a test that names null or a blank text.
    A value that the test cannot read (``min`` on a text, ``glob``
    on a number) is an error, and so a block: `"9000"` must not slip under a limit of 1000.
    """

    codes = frozenset({"argument", "argument_missing"})
    type: Literal["argument"]
    path: PathText
    """JSONPath of the value, e.g. ``$.amount``."""
    equals: Scalar = None
    """Exactly this value; for null write ``in: [null]``."""
    in_: tuple[Scalar, ...] | None = Field(default=None, alias="in", min_length=1)
    """One of these values.  Types count: `1` is not `"1"` and not `true`."""
    glob: Glob | None = None
    """The whole text matches: ``*`` any characters, ``?`` one.  Case counts."""
    re2: Re2 | None = None
    """The whole text matches this RE2 expression; it takes time linear in the text."""
    min: float | None = None
    """A number of at least this."""
    max: float | None = None
    """A number of at most this."""
    negate: bool = False
    """Turn the test around."""
    remember: Literal["directory"] | None = None
    """With ``directory``, a person can answer for all files below the directory of each value; the
    values are absolute paths."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the values say so.

        Raises:
            ValueError: a value the test cannot read, or too many values.
        """
        call = situation.call
        given = filterfalse(is_empty, self._values(call.call.arguments))
        values = [value for value in given if not self._is_remembered(value, call)]
        if not values and self._names_nothing:
            passed = [not self.negate]
        else:
            passed = [self._passes(value) is not self.negate for value in values]
        if not passed:
            if self.negate and self.effect is not Action.ALLOW:
                return self.reason("argument_missing", f"no value at {self.path.text}", targets)
            return None
        applies = all(passed) if self.effect is Action.ALLOW else any(passed)
        if not applies:
            return None
        verb = "fails" if self.negate else "passes"
        test = " and ".join(name for name, value in self._tests() if value is not None)
        detail = f"a value at {self.path.text} {verb} the test `{test}`"
        if self.negate and self.equals is not None:
            use: dict[str, Json] = {"use": self.equals, "argument": self.path.text}
            return self.reason("argument", detail, targets, **use)
        return self.reason("argument", detail, targets)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield a missing test, more than one, and a range that holds no number."""
        given = [name for name, value in self._tests() if value is not None]
        if not given:
            yield "no test; give one of `equals`, `in`, `glob`, `re2`, `min`, `max`"
        elif len(given) > 1 and given != ["min", "max"]:
            names = ", ".join(f"`{name}`" for name in given)
            yield f"more than one test ({names}); write a rule for each"
        asks = self.effect is Action.ASK and self.tools and not self.negate
        if self.remember and not (asks and (self.glob or self.re2)):
            yield "`remember` is for a `glob` or `re2` that asks, with `tools` and no `negate`"
        if self.min is not None and self.max is not None and self.min > self.max:
            yield f"no number is at least {self.min} and at most {self.max}; swap them"

    def _tests(self) -> Iterator[tuple[str, object]]:
        yield from (("equals", self.equals), ("in", self.in_), ("glob", self.glob))
        yield from (("re2", self.re2), ("min", self.min), ("max", self.max))

    @property
    def _names_nothing(self) -> bool:
        """Return whether the test names null or a blank text, which an absent value passes."""
        wanted = self.in_ or (() if self.equals is None else (self.equals,))
        return any(map(is_empty, wanted))

    def folders(self) -> FolderRule | None:
        """Return the paths for which a person can answer, where the rule remembers."""
        claims = any_pattern(self.tools or ())
        return FolderRule(self.id, claims, self._paths) if self.remember else None

    def _paths(self, arguments: Mapping[str, Json]) -> tuple[str, ...]:
        try:
            values = [value for value in self._values(arguments) if isinstance(value, str)]
        except ValueError:
            return ()
        return tuple(value for value in values if not is_empty(value) and self._passes(value))

    def _is_remembered(self, value: Json, call: TracedCall) -> bool:
        remembers = self.remember is not None and isinstance(value, str)
        return remembers and is_covered(str(value), call.context)

    def _values(self, arguments: Mapping[str, Json]) -> Iterator[Json]:
        selected = [value for _, value in self.path.find(arguments)]
        # The list of what is selected comes first.
        for count, value in enumerate(parts_of(selected)):
            if count > VALUE_LIMIT:
                raise ValueError(f"more than {VALUE_LIMIT} values to test")
            if not isinstance(value, dict | list):
                yield value

    def _passes(self, value: Json) -> bool:
        if self.equals is not None:
            return _same(value, self.equals)
        if self.in_ is not None:
            return any(_same(value, one) for one in self.in_)
        matches = self._pattern
        if matches is not None:
            if not isinstance(value, str):
                raise ValueError("a value that is not a text cannot be matched")
            return matches(value) is True
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a value that is not a number cannot be compared")  # noqa: TRY004  (one kind of error)
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    @property
    def _pattern(self) -> Callable[[str], bool] | None:
        pattern = self.glob or self.re2
        return None if pattern is None else pattern.matches


def _same(value: Json, wanted: Scalar) -> bool:
    """Compare as JSON does: `true` is not `1`."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)
