"""Why a call is decided as it is: for a described call, or for a decision in the audit log."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML

from guard.core.errors import InputError, MessageError
from guard.core.policy import Action, Policy
from guard.policy.field_types import validate
from guard.protocols.framing.json_messages import parse_json
from guard.protocols.refusals import remedy
from guard.replay.described_calls import DescribedCall, Judgement
from guard.telemetry.audit_log import EVENT_DECISION

if TYPE_CHECKING:
    from pathlib import Path


DECISION_ID: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def passes(document: dict[str, Any]) -> bool:
    """Return whether the explained decision lets the call through."""
    return document["action"] in {action.label for action in Action if action.forwards}


def read_described(data: bytes) -> DescribedCall:
    """Return the call that a JSON document describes, with its trajectory.

    Raises:
        InputError: it is no such document.
    """
    try:
        value = parse_json(data)
    except MessageError as error:
        raise InputError(str(error).replace("the body", "the call")) from error
    if isinstance(value, dict) and "call" not in value:
        value = {"call": value}
    described, problems = validate(DescribedCall, value, {(): DescribedCall})
    if described is None:
        raise InputError("; ".join(message for _, message in problems))
    return described


def explained(policy: Policy, judged: Judgement) -> dict[str, Any]:
    """Return what is decided on a described call and why, with the evidence."""
    call, verdict = judged.call, judged.verdict
    mapping = call.classified.mapping
    matched = {reason.rule for reason in verdict.reasons}
    return {
        "action": verdict.action.label,
        "mode": verdict.mode.value,
        "tool": call.call.tool,
        "role": call.classified.role.value,
        "mapping": None if mapping is None else f"{mapping.pattern} (line {mapping.declared.line})",
        "targets": [
            {"path": t.path, "kind": t.destination.kind, "standing": t.status.value}
            for t in call.targets
        ],
        **({} if call.action is None else {"change": call.action.described()}),
        "findings": [
            {"detector": f.detector, "code": f.code, "score": f.score, "detail": f.detail}
            for f in judged.findings(policy)
        ],
        **({"facts": dict(verdict.facts)} if verdict.facts else {}),
        "reasons": [
            {
                "action": reason.action.label,
                "code": reason.code,
                "rule": reason.rule,
                "detail": reason.detail,
                "evidence": reason.evidence,
                "remedy": reason.remedy,
                "description": _description(policy, reason.rule),
            }
            for reason in verdict.reasons
        ],
        "not_matched": [rule.id for rule in policy.rules if rule.id not in matched],
        "errors": list(verdict.errors),
        "policy": verdict.policy,
    }


def _description(policy: Policy | None, rule: str) -> str:
    rules = policy.rules if policy is not None else ()
    return next((getattr(one, "description", "") for one in rules if one.id == rule), "")


def recorded(what: str, audit: Path, policy: Policy | None) -> dict[str, Any]:
    """Return the audit line of a decision, with what its policy says of the rules.

    Raises:
        InputError: it is not a decision id, or the log does not have it.
        OSError: the log cannot be read.
    """
    if not DECISION_ID.fullmatch(what):
        raise InputError(f"`{what}` is not a decision id; agents see it in the refusal")
    with audit.open("rb") as lines:
        for line in lines:
            # Most lines are about something else; they need not be parsed.
            if what.encode() not in line:
                continue
            try:
                found = parse_json(line)
            except MessageError:
                continue
            if isinstance(found, dict) and found.get("decision_id") == what:
                return _with_descriptions(found, policy)
    raise InputError(f"decision `{what}` is not in `{audit}`; older lines may be in a rotated file")


def _with_descriptions(line: dict[str, Any], policy: Policy | None) -> dict[str, Any]:
    if line.get("event") != EVENT_DECISION:
        found = {"action": line["action"], "code": line["code"], "rule": ""}
        return {**line, "reasons": [{**found, "remedy": remedy(line["code"])}]}
    if policy is None:
        return line
    if policy.digest != line["policy"]:
        return {**line, "note": "the policy given is not the one that decided this call"}
    reasons = [
        {**reason, "description": _description(policy, reason["rule"])}
        for reason in line["reasons"]
    ]
    return {**line, "reasons": reasons}


def lines_of(document: dict[str, Any]) -> list[str]:
    """Return an explanation for a person, as lines of YAML; what others wrote is not escaped."""
    stream = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    # Plain values only, each written out where it stands.
    yaml.dump(json.loads(json.dumps(document)), stream)
    return stream.getvalue().splitlines()
