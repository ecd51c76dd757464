"""Tests of policies: ``NAME_test.yaml`` beside ``NAME.yaml`` says what the policy must decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, Field

from guard.core.errors import PolicyError, PolicyProblem
from guard.core.policy import JudgesResults, Policy, Rule, Verdict
from guard.policy.compile import load_policies
from guard.policy.field_types import Location, Version, validate
from guard.policy.yaml_loader import Document, load_document
from guard.replay.described_calls import (
    CallEntry,
    DescribedCall,
    DescribedEntry,
    IdentityEntry,
    MemoryEntry,
    TrajectoryEntry,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guard.core.ports import Detector

SUFFIX: Final = "_test.yaml"


class CaseEntry(DescribedCall):
    """One test: a call, and what must be decided why."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    verdict: Literal["allow", "redact", "ask", "block"]
    reasons: Annotated[tuple[str, ...], Field(min_length=1)]
    """Codes or rule ids, each among the reasons for the verdict; others may be there as well."""
    errors: Annotated[int, Field(ge=0)] = 0
    """Number of errors in the verdict."""


class SuiteEntry(DescribedEntry):
    """One test file."""

    version: Version
    policy: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Policy files, relative to this one; left out, the file it is named after."""
    tests: Annotated[tuple[CaseEntry, ...], Field(min_length=1)]


NESTED: Final[dict[Location, type[BaseModel]]] = {
    (): SuiteEntry,
    ("tests",): CaseEntry,
    ("tests", "trajectory"): TrajectoryEntry,
    ("tests", "memory"): MemoryEntry,
    ("tests", "call"): CallEntry,
    ("tests", "call", "identity"): IdentityEntry,
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A test file with its policy."""

    path: str
    policy: Policy
    cases: tuple[CaseEntry, ...]
    lines: tuple[int, ...]
    """The line of each case."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one test."""

    suite: Suite
    case: CaseEntry
    line: int
    verdict: Verdict
    complaints: tuple[str, ...]
    """Differences from the test; empty where it passed."""


@dataclass(slots=True)
class Coverage:
    """Rules and tool mappings of one policy that some test has used."""

    policy: Policy
    rules: set[str] = field(default_factory=set)
    mappings: set[int] = field(default_factory=set)

    @property
    def _rules(self) -> list[Rule]:
        """Rules about calls: a test describes a call, never a result."""
        return [rule for rule in self.policy.rules if not isinstance(rule, JudgesResults)]

    @property
    def missed(self) -> tuple[str, ...]:
        """Rules that gave no test a reason, and mappings that claimed no test's tool."""
        rules = (f"rule `{r.id}`" for r in self._rules if r.id not in self.rules)
        mappings = (
            f"tool mapping `{mapping.pattern}` (line {mapping.declared.line})"
            for index, mapping in enumerate(self.policy.tools)
            if index not in self.mappings
        )
        return (*rules, *mappings)

    @property
    def share(self) -> float:
        """The share of rules and mappings that were used, from 0 to 1."""
        total = len(self._rules) + len(self.policy.tools)
        return 1 - len(self.missed) / total if total else 1.0


def find_suites(paths: Iterable[Path]) -> list[Path]:
    """Return the test files under directories, of policies, or named themselves.

    Raises:
        PolicyError: a path does not exist, or a policy has no test file.
    """
    found: list[Path] = []
    problems: list[PolicyProblem] = []
    for path in paths:
        if path.is_dir():
            found.extend(sorted(path.rglob(f"*{SUFFIX}")))
            continue
        suite = path if path.name.endswith(SUFFIX) else path.with_name(path.stem + SUFFIX)
        if suite.is_file():
            found.append(suite)
        else:
            problems.append(PolicyProblem(str(path), 0, f"there is no test file `{suite.name}`"))
    if problems:
        raise PolicyError(tuple(problems))
    return list(dict.fromkeys(found))


def find_policies(path: Path) -> list[Path]:
    """Return the policy files that make one policy: those in a directory, else the file itself.

    Raises:
        PolicyError: the directory has none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.glob("*.yaml") if not each.name.endswith(SUFFIX))
    if not found:
        raise PolicyError((PolicyProblem(str(path), 0, "there is no `.yaml` file in it"),))
    return found


def load_suite(path: Path, texts: Mapping[str, str] | None = None) -> Suite:
    """Read one test file and the policy it is about.

    Args:
        path: of the test file.
        texts: by path, what stands for the content of a file.

    Raises:
        PolicyError: either cannot be used.
    """
    document = load_document(path, (texts or {}).get(str(path)))
    problems = list(document.problems)
    content, errors = (None, []) if problems else validate(SuiteEntry, document.value, NESTED)
    problems.extend(
        PolicyProblem(document.path, document.line(location), message)
        for location, message in errors
    )
    if problems or content is None:
        raise PolicyError(tuple(sorted(problems, key=lambda problem: problem.line)))
    names = content.policy or (path.name.removesuffix(SUFFIX) + ".yaml",)
    policy = load_policies([path.parent / name for name in names], texts)
    _check_names(document, content)
    lines = tuple(document.line(("tests", index)) for index in range(len(content.tests)))
    return Suite(str(path), policy, content.tests, lines)


def _check_names(document: Document, content: SuiteEntry) -> None:
    seen: set[str] = set()
    for index, case in enumerate(content.tests):
        if case.name in seen:
            line = document.line(("tests", index, "name"))
            message = f"two tests are called `{case.name}`; rename one"
            raise PolicyError((PolicyProblem(document.path, line, message),))
        seen.add(case.name)


def run_suite(suite: Suite, detectors: Sequence[Detector], coverage: Coverage) -> list[Outcome]:
    """Judge every call of a test file.

    Raises:
        PolicyError: a trajectory names what the policy does not know.
    """
    outcomes: list[Outcome] = []
    for case, line in zip(suite.cases, suite.lines, strict=True):
        try:
            judged = judge(suite.policy, detectors, case)
        except ValueError as error:
            raise PolicyError((PolicyProblem(suite.path, line, str(error)),)) from error
        verdict = judged.verdict
        coverage.rules.update(reason.rule for reason in verdict.reasons if reason.rule)
        mapping = judged.call.classified.mapping
        coverage.mappings.update(
            index for index, one in enumerate(suite.policy.tools) if one is mapping
        )
        outcomes.append(Outcome(suite, case, line, verdict, tuple(_complaints(case, verdict))))
    return outcomes


def _complaints(case: CaseEntry, verdict: Verdict) -> Iterable[str]:
    deciding = [reason for reason in verdict.reasons if reason.action is verdict.action]
    known = {reason.code for reason in deciding} | {reason.rule for reason in deciding}
    why = ", ".join(f"{r.code} ({r.rule or 'guard'})" for r in deciding)
    if verdict.action.label != case.verdict:
        yield f"expected {case.verdict}, got {verdict.action.label}: {why}"
    elif missing := [reason for reason in case.reasons if reason not in known]:
        names = ", ".join(f"`{name}`" for name in missing)
        yield f"{verdict.action.label}, but not for {names}: {why}"
    if len(verdict.errors) != case.errors:
        listed = "; ".join(verdict.errors) or "none"
        yield f"expected {case.errors} errors, got {len(verdict.errors)}: {listed}"
