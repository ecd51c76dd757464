"""Ladder of actions: the rung of what a call changes.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guard.core.calls import ActionAttestation
from guard.core.labels import ActionRung, Rung
from guard.core.model import Destination, Integrity
from guard.provenance.actions import (
    ACTION,
    PROMPTED,
    covering_forms,
    kind_value,
    object_kind,
    object_value,
)
from guard.provenance.ladder import vouches

if TYPE_CHECKING:
    from guard.core.calls import Target
    from guard.core.labels import Context, LabelRecord


def attest_action(
    action: str, objects: tuple[Target, ...], context: Context, *, listed: bool = False
) -> ActionAttestation:
    """Return the rung of a call's action.

    Args:
        action: declared by the tool's mapping.
        objects: values of the arguments that name its object, each with its attestation.
        context: records of the values of the call.
        listed: the policy lists the action for this tool.
    """
    if listed:
        return ActionAttestation(action, ActionRung.LISTED, "listed")
    if context.granted:
        return ActionAttestation(action, ActionRung.GRANTED, "grant")
    said = context.values.get(f"{ACTION}{action}")
    record = None if said is None else said.prompt
    tainted = next((one for one in objects if _rung(one) is Rung.TAINTED), None)
    least = Integrity.AUTHENTICATED
    if objects and tainted is None:
        # The agent judges a condition, so untrusted text must not choose the object.
        least = Integrity.ADVISORY
    requested = _says(record, context, least)
    other = _other(action, objects, context, least) if requested else None
    if requested and other is None:
        return ActionAttestation(action, ActionRung.REQUESTED, "prompt", record)
    # An approval of earlier objects is none of an object that only untrusted text names.
    if tainted is not None:
        return ActionAttestation(action, ActionRung.TAINTED, "tainted", None, tainted)
    established = context.established.get(Destination("action", action))
    if vouches(established, context):
        return ActionAttestation(action, ActionRung.ESTABLISHED, "approved_before", established)
    why = "other_object" if other is not None else _why_unrequested(record, context)
    return ActionAttestation(action, ActionRung.UNREQUESTED, why, record, other)


def _rung(target: Target) -> Rung | None:
    return None if target.attestation is None else target.attestation.rung


def _why_unrequested(record: LabelRecord | None, context: Context) -> str:
    if record is not None and record.label is Integrity.UNTRUSTED:
        return "refused"
    channel = context.values.get(PROMPTED)
    # The principal's record, not the session's: a client chooses its session id.
    return "no_prompt" if channel is None or channel.denied is None else "not_requested"


def _other(
    action: str, objects: tuple[Target, ...], context: Context, least: Integrity
) -> Target | None:
    """Return the first object that a prompt does not name, although it names one of its kind.

    Args:
        action: requested by the prompt.
        objects: of the call.
        context: records of their values.
        least: label of the prompts that count; ``ADVISORY`` adds conditions.
    """
    for target in objects:
        text = target.destination.canonical
        names = (object_value(action, form) for form in covering_forms(text))
        if _is_said(kind_value(action, object_kind(text)), context, least) and not any(
            _is_said(name, context, least) for name in names
        ):
            return target
    return None


def _is_said(value: str, context: Context, least: Integrity) -> bool:
    known = context.values.get(value)
    return known is not None and _says(known.prompt, context, least)


def _says(record: LabelRecord | None, context: Context, least: Integrity) -> bool:
    """Return whether a prompt of this session says something, at least with some label."""
    if record is None or record.label < least:
        return False
    return vouches(replace(record, label=Integrity.TRUSTED), context)
