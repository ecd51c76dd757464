"""Rule type ``expression``: matches calls by a CEL expression.  Pure: no I/O.

CEL (Common Expression Language) has no loops but its macros, no side effects, and matches regular
expressions in linear time.  Reason code: ``expression``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import PlainSerializer, PlainValidator

from guard.core.json_values import parts_of, without_empty
from guard.core.model import ROLES, Json
from guard.policy.rules.base import PolicyOutline, RuleConfig

if TYPE_CHECKING:
    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.core.trajectory import Window

MAX_SOURCE: Final = 2000
"""Characters of one expression."""
MAX_VALUES: Final = 10_000
"""Values that the arguments and destinations of a call may have for an expression to judge it."""
MAX_STEPS: Final = 200_000
"""Values to the power of the macros: what nested macros may cost, about 0.2 s at most."""
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_LITERAL_REGEX: Final = re.compile(r"\.\s*matches\s*\(\s*(r?(?:'[^'\n]*'|\"[^\"\n]*\"))\s*\)")
_FACT: Final = re.compile(r"\bfacts\s*\.\s*([A-Za-z_]\w*)")
_TYPES: Final = frozenset({"int", "uint", "double", "string", "bool", "bytes", "list", "map"})
FUNCTIONS: Final = _TYPES | {
    *("size", "contains", "startsWith", "endsWith", "matches", "has", "type", "dyn"),
    *("timestamp", "duration"),
}

VARIABLES: Final[dict[str, tuple[str, Callable[[Situation], Any]]]] = {
    "tool": ("the tool's name", lambda s: s.call.call.tool),
    "role": ("its role", lambda s: s.call.classified.role.value),
    "mapped": ("whether a mapping claims the tool", lambda s: s.call.classified.mapped),
    "args": (
        "the call's arguments, as sent, without members that are null, blank or empty",
        lambda s: without_empty(dict(s.call.call.arguments)) or {},
    ),
    "destinations": (
        "a list of `{kind, host, canonical, status, path}`",
        lambda s: [_destination(target) for target in s.call.targets],
    ),
    "principal": ("the principal's name", lambda s: s.call.call.identity.principal),
    "principal_rung": (
        "`anonymous`, `credential` or `recorded`",
        lambda s: s.call.call.identity.principal_rung.name.lower(),
    ),
    "session_rung": (
        "how the session is known, e.g. `mcp_session`",
        lambda s: s.call.call.identity.session_rung.name.lower(),
    ),
    "protocol": ("the protocol the call came by", lambda s: s.call.call.protocol),
    "session": (
        "its counters: `attempted`, `executed`, `refused` by role; `refused_in_a_row`",
        lambda s: _window(s.snapshot.session),
    ),
    "owner": (
        "the same counters of the principal's window",
        lambda s: _window(s.snapshot.principal),
    ),
    "score": ("the highest prefix score, or null", lambda s: s.score),
    "facts": ("what detectors say of the call, as `facts.NAME`", lambda s: s.facts),
}
"""Variables of an expression: description and lookup of each.  Only those it names are built."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One compiled expression."""

    source: str
    program: Any
    """A ``cel.Program``."""
    names: tuple[str, ...]
    """The variables it needs."""
    macros: int
    counters: dict[str, tuple[tuple[str, str], ...]]
    """Counters that it names of ``session`` and ``owner``, if it names nothing else of them."""
    facts: frozenset[str]
    """The facts that it names."""

    @classmethod
    def parse(cls, source: Json) -> Expression:
        """Compile an expression.

        Raises:
            ValueError: it is not CEL, is too long, names what does not exist, or has a regular
                expression that does not compile.
        """
        if not isinstance(source, str) or not 0 < len(source) <= MAX_SOURCE:
            raise ValueError(f"an expression is a text of 1 to {MAX_SOURCE} characters")
        # Here: the package loads its command line too, and most policies have no expression.
        import cel

        program = _quietly(lambda: cel.compile(source), "not a CEL expression")
        found = program.references()
        macros = _MACRO.findall(source)
        unknown = set(found["variables"]) - set(VARIABLES) - _TYPES - set(macros)
        if unknown:
            known = ", ".join(f"`{name}`" for name in VARIABLES)
            raise ValueError(f"unknown variable `{min(unknown)}`; there are {known}")
        functions = {name for name in found["functions"] if name.isidentifier()} - FUNCTIONS
        if functions:
            known = ", ".join(f"`{name}`" for name in sorted(FUNCTIONS))
            raise ValueError(f"unknown function `{min(functions)}`; there are {known}")
        for literal in _LITERAL_REGEX.findall(source):
            probe = f"''.matches({literal})"
            _quietly(lambda probe=probe: cel.compile(probe).execute({}), f"in `matches({literal})`")  # type: ignore[misc]
        names = tuple(name for name in VARIABLES if name in found["variables"])
        windows = {name: _counters_named(source, name) for name in _WINDOWS if name in names}
        counters = {name: named for name, named in windows.items() if named is not None}
        facts = frozenset(_FACT.findall(source))
        if "facts" in names and not facts:
            raise ValueError("name each fact as `facts.NAME`")
        return cls(source, program, names, len(macros), counters, facts)

    def holds(self, situation: Situation) -> bool:
        """Return whether the expression is true of a call.

        Raises:
            ValueError: it cannot be evaluated on this call, or is neither true nor false.
        """
        context = {
            name: _some_counters(_WINDOWS[name](situation), self.counters[name])
            if name in self.counters
            else VARIABLES[name][1](situation)
            for name in self.names
        }
        values = parts_of([context.get("args"), context.get("destinations")])
        size = sum(1 for _ in islice(values, MAX_VALUES + 1))
        if size > MAX_VALUES or (self.macros > 1 and size**self.macros > MAX_STEPS):
            raise ValueError("the call has too many values for this expression")
        value = _quietly(lambda: self.program.execute(context), "the expression fails")
        if not isinstance(value, bool):
            raise ValueError(f"the expression gives a {type(value).__name__}, not true or false")  # noqa: TRY004  (one kind of error)
        return value


class ExpressionRule(RuleConfig):
    """Applies to a call of which the CEL expression is true.

    An expression that cannot be evaluated (a missing argument, a wrong type) is an error, and so a
    block; write ``has(args.x) && ...`` where an argument is optional.  A member that is null, a
    blank text, or a container of such values only is missing.
    """

    codes = frozenset({"expression"})
    type: Literal["expression"]
    when: Annotated[
        Expression,
        PlainValidator(Expression.parse, json_schema_input_type=str),
        PlainSerializer(lambda expression: expression.source),
    ]
    """The expression."""

    @property
    def facts(self) -> frozenset[str]:
        """Names of the facts that the expression reads."""
        return self.when.facts

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield facts that no detector declares."""
        for name in sorted(self.facts - outline.facts):
            known = ", ".join(f"`{fact}`" for fact in sorted(outline.facts)) or "none"
            yield f"unknown fact `{name}`; detectors declare {known}"

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the expression is true of the call.

        Raises:
            ValueError: it cannot be evaluated.
        """
        if not self.when.holds(situation):
            return None
        return self.reason("expression", "the rule's expression is true of this call", targets)


def _quietly(run: Callable[[], Any], what: str) -> Any:
    """Run the CEL engine; whatever it raises becomes one kind of error, without argument text."""
    try:
        return run()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  (a panic of the engine is no Exception)
        detail = str(error).split("\n", maxsplit=1)[0][:200] if "CEL" in what else ""
        raise ValueError(f"{what}: {detail or type(error).__name__}") from None


def _destination(target: Target) -> dict[str, str]:
    found = target.destination
    return {
        "kind": found.kind,
        "host": found.host,
        "canonical": found.canonical,
        "status": target.status.value,
        "standing": target.status.value,
        "path": target.path,
    }


def _window(window: Window) -> dict[str, Any]:
    every = [(group, role) for group in _GROUPS for role in _ROLE_AT]
    return _some_counters(window, [*every, (_IN_A_ROW, "")])


_WINDOWS: Final[dict[str, Callable[[Situation], Window]]] = {
    "session": lambda s: s.snapshot.session,
    "owner": lambda s: s.snapshot.principal,
}
_ROLE_AT: Final = {role.value: index for index, role in enumerate(ROLES)}
_GROUPS: Final[dict[str, Callable[[Window], tuple[int, ...]]]] = {
    "attempted": lambda window: window.attempted,
    "executed": lambda window: window.trajectory.executed,
    "refused": lambda window: window.refused,
}
_IN_A_ROW: Final = "refused_in_a_row"
_COUNTER: Final = re.compile(rf"\.({'|'.join(_GROUPS)})\.([a-z]+)\b|\.({_IN_A_ROW})\b")


def _counters_named(source: str, name: str) -> tuple[tuple[str, str], ...] | None:
    """Return the counters of a window that an expression names; None where it may look at more.

    To hand all of a window to the engine takes longer than the rest of a decision.
    """
    named: dict[tuple[str, str], None] = {}
    for found in re.finditer(rf"\b{name}\b", source):
        counter = _COUNTER.match(source, found.end())
        if counter is None or (counter[2] and counter[2] not in _ROLE_AT):
            return None
        named[counter[1] or _IN_A_ROW, counter[2] or ""] = None
    return tuple(named)


def _some_counters(window: Window, named: Iterable[tuple[str, str]]) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for group, role in named:
        if role:
            view.setdefault(group, {})[role] = _GROUPS[group](window)[_ROLE_AT[role]]
        else:
            view[group] = window.refused_in_a_row
    return view
