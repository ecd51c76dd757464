"""``guard test``: run the tests beside the policies."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.detectors import Models, shipped_detectors
from guard.cli.terminal import plain
from guard.core.errors import GuardError, PolicyError
from guard.replay.policy_tests import (
    Coverage,
    Outcome,
    Suite,
    find_suites,
    load_suite,
    run_suite,
)

EXIT_FAILED_TEST = 2
EXIT_INVALID = 3
DEFAULT_PATH = Path("policies")


def policy_tests(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Policies, test files or directories (default: policies)."),
    ] = None,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="List rules and tool mappings that no test used.")
    ] = False,
    at_least: Annotated[
        float, typer.Option(min=0, max=1, help="Fail below this share of rules and mappings used.")
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per test.")] = False,
    models: Models = None,
) -> None:
    """Judge the calls in *_test.yaml files; a right verdict for a wrong reason fails.

    Exit code 0: all passed; 2: a test failed or too little was used; 3: a file is invalid.
    """
    out = Console(markup=False, highlight=False, soft_wrap=True)
    errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    try:
        suites = [load_suite(path) for path in find_suites(paths or [DEFAULT_PATH])]
        if not suites:
            raise GuardError("no test file found, name one or write `POLICY_test.yaml`")
        detectors = shipped_detectors(models)
        covered: dict[str, Coverage] = {}
        outcomes: list[Outcome] = []
        for suite in suites:
            used = covered.setdefault(suite.policy.digest, Coverage(suite.policy))
            done = run_suite(suite, detectors, used)
            outcomes.extend(done)
            _tell(out, suite, done, json=json)
    except PolicyError as error:
        errors.print(str(error))
        raise typer.Exit(EXIT_INVALID) from None
    except GuardError as error:
        errors.print(f"guard test: {error}")
        raise typer.Exit(EXIT_INVALID) from None
    enough = _coverage(errors if json else out, covered, at_least, shown=coverage or at_least > 0)
    failed = sum(bool(outcome.complaints) for outcome in outcomes)
    (errors if json else out).print(f"{len(outcomes) - failed} passed, {failed} failed")
    if failed or not enough:
        raise typer.Exit(EXIT_FAILED_TEST)


def _tell(out: Console, suite: Suite, outcomes: list[Outcome], *, json: bool) -> None:
    if json:
        for outcome in outcomes:
            print(json_module.dumps(_line(outcome)))
        return
    failed = [outcome for outcome in outcomes if outcome.complaints]
    out.print(f"{'FAIL' if failed else 'ok  '} {suite.path}: {len(outcomes)} tests")
    for outcome in failed:
        for complaint in outcome.complaints:
            where = f"{suite.path}:{outcome.line}: {outcome.case.name}"
            out.print(plain(f"     {where}: {complaint}"))


def _line(outcome: Outcome) -> dict[str, object]:
    verdict = outcome.verdict
    return {
        "file": outcome.suite.path,
        "line": outcome.line,
        "name": outcome.case.name,
        "passed": not outcome.complaints,
        "complaints": list(outcome.complaints),
        "action": verdict.action.label,
        "reasons": [
            {"code": r.code, "rule": r.rule, "action": r.action.label} for r in verdict.reasons
        ],
        "errors": list(verdict.errors),
    }


def _coverage(out: Console, covered: dict[str, Coverage], at_least: float, *, shown: bool) -> bool:
    """Print what no test used; return whether every policy reaches the share."""
    enough = True
    for one in covered.values():
        if shown:
            out.print(f"coverage {one.share:.0%} {one.policy.name}")
            for missed in one.missed:
                out.print(f"     never used: {missed}")
        enough = enough and one.share >= at_least
    return enough
