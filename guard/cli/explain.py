"""``guard explain``: say why, for a described call or for a decision in the audit log."""

from __future__ import annotations

import json as json_module
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from guard.adapters.audit_log import (
    EVENT_DECISION,
    FIELD_ACTION,
    FIELD_DECISION,
    FIELD_EVENT,
    FIELD_POLICY,
)
from guard.cli.detectors import Models, shipped_detectors
from guard.cli.terminal import plain
from guard.core.errors import GuardError, MessageError, PolicyError
from guard.core.policy import Policy
from guard.core.verdict import Action, Reason
from guard.policy_files import load_policies
from guard.policy_files.schema import validate
from guard.protocols.framing.strict_json import parse_json
from guard.replay.described_calls import DescribedCall, Judgement, judge

EXIT_REFUSED = 2
EXIT_INVALID = 3
_DECISION_ID: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    models: Models = None,
) -> None:
    """Say what is decided on a call and why, with the evidence.

    The file holds {"trajectory": [...], "call": {"tool", "arguments", ...}} as in a policy's tests,
    or just {"tool", "arguments"}.  Exit code 0: the call passes; 2: it does not; 3: invalid input.
    """
    try:
        loaded = load_policies(policy) if policy else None
        if audit is not None:
            document = _recorded(what, audit, loaded)
        elif loaded is None:
            raise GuardError("give the policy with `--policy`, or the log with `--audit`")
        else:
            judged = judge(loaded, shipped_detectors(models), _described(what))
            document = _document(loaded, judged)
    except PolicyError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_INVALID) from None
    except (GuardError, OSError, ValueError) as error:
        typer.echo(f"guard explain: {error}", err=True)
        raise typer.Exit(EXIT_INVALID) from None
    if json:
        print(json_module.dumps(document))
    else:
        _show(document)
    if document[FIELD_ACTION] not in {a.label for a in Action if a.forwards}:
        raise typer.Exit(EXIT_REFUSED)


def _described(what: str) -> DescribedCall:
    if what == "-":
        data = sys.stdin.buffer.read()
    elif Path(what).is_file():
        data = Path(what).read_bytes()
    elif _DECISION_ID.fullmatch(what):
        raise GuardError(f"`{what}` looks like a decision id; name its log with `--audit`")
    else:
        raise GuardError(f"`{what}` is neither a file nor a decision id")
    try:
        value = parse_json(data)
    except MessageError as error:
        raise GuardError(str(error).replace("the body", "the call")) from error
    if isinstance(value, dict) and "call" not in value:
        value = {"call": value}
    described, problems = validate(DescribedCall, value, {(): DescribedCall})
    if described is None:
        raise GuardError("; ".join(message for _, message in problems))
    return described


def _document(policy: Policy, judged: Judgement) -> dict[str, Any]:
    call, verdict = judged.call, judged.verdict
    mapping = policy.mapping(call.call.tool)
    matched = {reason.rule for reason in verdict.reasons}
    return {
        FIELD_ACTION: verdict.action.label,
        "mode": verdict.mode.value,
        "tool": call.call.tool,
        "role": call.classified.role.value,
        "mapping": None if mapping is None else f"{mapping.pattern} (line {mapping.line})",
        "targets": [
            {"path": t.path, "kind": t.destination.kind, "standing": t.standing.value}
            for t in call.targets
        ],
        "findings": [
            {"detector": f.detector, "code": f.code, "score": f.score, "detail": f.detail}
            for f in judged.findings
        ],
        "reasons": [_reason(policy, reason) for reason in verdict.reasons],
        "not_matched": [rule.id for rule in policy.rules if rule.id not in matched],
        "errors": list(verdict.errors),
        FIELD_POLICY: verdict.policy,
    }


def _reason(policy: Policy, reason: Reason) -> dict[str, Any]:
    return {
        "action": reason.action.label,
        "code": reason.code,
        "rule": reason.rule,
        "detail": reason.detail,
        "evidence": dict(reason.evidence),
        "remedy": reason.remedy,
        "description": _description(policy, reason.rule),
    }


def _description(policy: Policy | None, rule: str) -> str:
    rules = policy.rules if policy is not None else ()
    return next((getattr(one, "description", "") for one in rules if one.id == rule), "")


def _recorded(what: str, audit: Path, policy: Policy | None) -> dict[str, Any]:
    """Return the audit line of a decision, with what its policy says of the rules."""
    if not _DECISION_ID.fullmatch(what):
        raise GuardError(f"`{what}` is not a decision id; agents see it in the refusal")
    with audit.open("rb") as lines:
        for line in lines:
            # Most lines are about something else; they need not be parsed.
            if what.encode() not in line:
                continue
            try:
                found = parse_json(line)
            except MessageError:
                continue
            if isinstance(found, dict) and found.get(FIELD_DECISION) == what:
                return _with_descriptions(found, policy)
    raise GuardError(f"decision `{what}` is not in `{audit}`; older lines may be in a rotated file")


def _with_descriptions(line: dict[str, Any], policy: Policy | None) -> dict[str, Any]:
    if line.get(FIELD_EVENT) != EVENT_DECISION:
        return {**line, "reasons": [{"action": line["action"], "code": line["code"], "rule": ""}]}
    if policy is None:
        return line
    if policy.digest != line[FIELD_POLICY]:
        return {**line, "note": "the policy given is not the one that decided this call"}
    reasons = [
        {**reason, "description": _description(policy, reason["rule"])}
        for reason in line["reasons"]
    ]
    return {**line, "reasons": reasons}


def _show(document: dict[str, Any]) -> None:
    out = Console(markup=False, highlight=False, soft_wrap=True)
    for line in _lines(document):
        out.print(plain(line))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document[FIELD_ACTION]}: {document.get('tool', 'a request that was no call')}"
    for name in ("decision_id", "at", "principal", "session", "role", "mapping", "mode", "score"):
        if document.get(name) is not None:
            yield f"  {name}: {document[name]}"
    for target in document.get("targets", ()):
        where = target.get("path") or "nowhere"
        yield f"  destination at {where}: {target['standing']} ({target['kind']})"
    for finding in document.get("findings", ()):
        yield f"  finding {finding['code']}: {finding['detail']}"
    for reason in document["reasons"]:
        yield from _reason_lines(reason)
    if document.get("not_matched"):
        yield f"  did not apply: {', '.join(document['not_matched'])}"
    yield from (f"  error: {error}" for error in document.get("errors", ()))
    if document.get("note"):
        yield f"  note: {document['note']}"


def _reason_lines(reason: dict[str, Any]) -> Iterator[str]:
    yield f"  {reason['action']} by {reason['rule'] or 'the guard'}: {reason['code']}"
    for name in ("detail", "description", "remedy"):
        if reason.get(name):
            yield f"    {name}: {reason[name]}"
    if reason.get("evidence"):
        yield f"    evidence: {json_module.dumps(reason['evidence'])}"
