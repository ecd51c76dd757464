"""``guard policy …``: policies are checked, tested, explained, compared and proposed."""

from __future__ import annotations

import asyncio
import json as json_module
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from guard.cli.outcome import Code, given_input, plain
from guard.cli.running import redis_url, shipped_detectors
from guard.cli.terminal import show_table
from guard.core.errors import InputError
from guard.policy import load_policies
from guard.policy.vocabulary import vocabulary_file
from guard.settings import BUILTIN, EMBEDDED, builtin_policies, policy_file

if TYPE_CHECKING:
    from guard.replay.policy_tests import Coverage, Outcome, Suite

DEFAULT_PATH: Final = Path("policies")
MAX_BYTES: Final = 16 * 1024 * 1024
Models = Annotated[
    Path | None, typer.Option("--models", help="Models directory; the shipped one if unset.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one a line.")]
_TEXT: Final[dict[str, Any]] = {"markup": False, "highlight": False, "soft_wrap": True}


def check(
    policy: Annotated[list[Path], typer.Argument(help="Policy files; several make one policy.")],
) -> None:
    """Check policy files and exit with 0 if they are valid, with 3 if not."""
    loaded = load_policies(policy)
    for warning in loaded.source.warnings:
        typer.echo(plain(f"warning: {warning}"), err=True)
    typer.secho("OK", fg="green", nl=False)
    typer.echo(
        f" {loaded.name}: {len(loaded.tools)} tool mappings, "
        f"{len(loaded.rules)} rules, mode {loaded.mode.value}, digest {loaded.digest[:12]}"
    )


def run_tests(
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
    json: AsJson = False,
    models: Models = None,
) -> None:
    """Judge the calls in *_test.yaml files; a right verdict for a wrong reason fails.

    Exit code 0: all passed; 2: a test failed or too little was used; 3: a file is invalid.
    """
    from guard.replay.policy_tests import Coverage, find_suites, load_suite, run_suite

    out, errors = Console(**_TEXT), Console(stderr=True, **_TEXT)
    with given_input():
        suites = [load_suite(path) for path in find_suites(paths or [DEFAULT_PATH])]
        if not suites:
            raise InputError("no test file found, name one or write `POLICY_test.yaml`")
        detectors = shipped_detectors(models)
    covered: dict[str, Coverage] = {}
    outcomes: list[Outcome] = []
    for suite in suites:
        used = covered.setdefault(suite.policy.digest, Coverage(suite.policy))
        done = run_suite(suite, detectors, used)
        outcomes.extend(done)
        _tell(out, suite, done, json=json)
    enough = _coverage(errors if json else out, covered, at_least, shown=coverage or at_least > 0)
    failed = sum(bool(outcome.complaints) for outcome in outcomes)
    (errors if json else out).print(f"{len(outcomes) - failed} passed, {failed} failed")
    if failed or not enough:
        raise typer.Exit(Code.REFUSED)


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


def explain(
    what: Annotated[
        str, typer.Argument(help="A JSON file with a call, `-` for stdin, or a decision id.")
    ],
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", "-p", help="Policy files; repeat to merge."),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="The audit log that a decision id is looked up in.")
    ] = None,
    json: AsJson = False,
    models: Models = None,
) -> None:
    """Say what is decided on a call and why, with the evidence.

    The file holds {"trajectory": [...], "call": {"tool", "arguments", ...}} as in a policy's tests,
    or just {"tool", "arguments"}.  Exit code 0: the call passes; 2: it does not; 3: invalid input.
    """
    from guard.replay.described_calls import judge
    from guard.replay.explanation import explained, lines_of, passes, read_described, recorded

    with given_input():
        loaded = load_policies(policy) if policy else None
        if audit is not None:
            document = recorded(what, audit, loaded)
        elif loaded is None:
            raise InputError("give the policy with `--policy`, or the log with `--audit`")
        else:
            described = read_described(_call_bytes(what))
            document = explained(loaded, judge(loaded, shipped_detectors(models), described))
    if json:
        print(json_module.dumps(document))
    else:
        out = Console(**_TEXT)
        for line in lines_of(document):
            out.print(plain(line))
    if not passes(document):
        raise typer.Exit(Code.REFUSED)


def _call_bytes(what: str) -> bytes:
    from guard.replay.explanation import DECISION_ID

    if what == "-":
        return sys.stdin.buffer.read()
    if Path(what).is_file():
        return Path(what).read_bytes()
    if DECISION_ID.fullmatch(what):
        raise InputError(f"`{what}` looks like a decision id; name its log with `--audit`")
    raise InputError(f"`{what}` is neither a file nor a decision id")


def diff(
    before: Annotated[Path, typer.Argument(help="The policy as it was: a file, or a directory.")],
    after: Annotated[Path, typer.Argument(help="The policy as it will be, likewise.")],
    traces: Annotated[list[Path], typer.Argument(help="Trace files: .jsonl or .jsonl.gz.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option("--policy", "-p", help="File or directory of both policies, read first."),
    ] = None,
    redis: Annotated[
        str, typer.Option("--redis", help="`embedded`, or the URL of your own Redis.")
    ] = EMBEDDED,
    json: AsJson = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 2 if any verdict flips.")
    ] = False,
    models: Models = None,
) -> None:
    """List the calls of recorded runs that two policies decide differently, with the rules.

    Several files make one policy: all in a directory but tests, and those named with --policy.

    Exit code 0: replayed; 1: failed; 2: a verdict flipped, with --exit-code; 3: invalid input.
    """
    from guard.replay.policy_tests import find_policies
    from guard.replay.run import find_flips, sentence
    from guard.replay.traces import read_traces

    shared = [file for path in beside or () for file in find_policies(path)]
    policies = (
        load_policies((*shared, *find_policies(before))),
        load_policies((*shared, *find_policies(after))),
    )
    # Read once ahead: a bad line is refused before anything is judged.
    runs = sum(1 for _ in read_traces(traces))
    with redis_url(redis) as url:
        job = find_flips(policies, lambda: read_traces(traces), url, shipped_detectors(models))
        flips, calls = asyncio.run(job)
    for flip in flips:
        print(json_module.dumps(flip) if json else plain(sentence(flip)))
    kinds = Counter(f"{flip['before']} -> {flip['after']}" for flip in flips)
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no flip"
    typer.echo(f"{runs} runs, {calls} calls: {summary}", err=True)
    if flips and exit_code:
        raise typer.Exit(Code.REFUSED)


def schema() -> None:
    """Print the JSON schema of policy files.

    Name it in a policy's first line: # yaml-language-server: $schema=schema.json
    """
    from guard.policy.json_schema import schema_text

    typer.echo(schema_text(), nl=False)


def migrate(
    path: Annotated[Path, typer.Argument(help="Policy file.")],
    detector: Annotated[
        str | None,
        typer.Option(
            "--detector",
            help="Detector in place of the removed reader `injection_text`; else its rules go.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Rewrite the file; else print the result.")
    ] = False,
) -> None:
    """Rewrite the removed fields of a policy, with comments kept; list each change.

    Exit code 0: done, or nothing to do; 3: the file is not YAML, or has aliases.
    """
    from guard.policy.migrate import migrated

    text, changes = migrated(path.read_text(encoding="utf-8"), detector)
    for line in changes or ["nothing to migrate"]:
        typer.echo(f"{path}: {line}", err=True)
    if not write:
        typer.echo(text, nl=False)
    elif changes:
        path.write_text(text, encoding="utf-8")


def list_shipped() -> None:
    """List the policies that ship with the guard: what `--policy`, `extends` and `profile` name.

    Example: guard policies list
    """
    from guard.policy.inheritance import load_file

    rows = []
    for name in builtin_policies():
        content = load_file(Path(f"{BUILTIN}{name}")).content
        rows.append((f"{BUILTIN}{name}", content.revision, content.description))
    show_table(("name", "revision", "what it is"), rows)


def show_shipped(
    name: Annotated[
        str, typer.Argument(help="As `guard policies list` names it, or `actions`: the vocabulary.")
    ],
) -> None:
    """Print a policy that ships with the guard, or its vocabulary of actions.

    Example: guard policies show office
    """
    words = vocabulary_file()
    named = name.removeprefix(BUILTIN)
    path = words if named == words.stem else policy_file(Path(BUILTIN + named))
    typer.echo(path.read_text(encoding="utf-8"), nl=False)


def import_openapi(
    file: Annotated[Path, typer.Argument(help="An OpenAPI 3 document, JSON or YAML.")],
    server: Annotated[
        str | None, typer.Option(help="Base URL; the document's first server if unset.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the proposed policy file.")] = "http-tools",
) -> None:
    """Print a policy file that maps the document's operations to tools, for you to review.

    It has no rules: give it to the guard together with your policy.  Exit code 3: invalid input.
    """
    from guard.policy.openapi import policy_lines, propose

    with given_input():
        proposal = propose(_openapi(file), server)
        if not proposal.tools:
            raise InputError(f"{file}: the document has no operation that can be a tool")
    for warning in proposal.warnings:
        typer.echo(plain(f"{file}: {warning}"), err=True)
    for line in policy_lines(proposal, name):
        print(line)


def _openapi(path: Path) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from guard.core.errors import MessageError
    from guard.protocols.framing.json_messages import parse_json

    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise InputError(f"`{path}` does not exist, or is larger than {MAX_BYTES} bytes")
    data = path.read_bytes()
    try:
        if data.lstrip()[:1] == b"{":
            return parse_json(data)
        # Refuses duplicate keys and builds nothing but plain values.
        return YAML(typ="safe", pure=True).load(data)
    except MessageError as error:
        raise InputError(f"{path}: {str(error).replace('the body', 'the document')}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: this is not YAML: {type(error).__name__}") from error
