"""Ladder of actions: the rung of what a call changes.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.calls import ActionAttestation
from guard.core.labels import ActionRung, Rung
from guard.core.model import Destination, Integrity
from guard.provenance.actions import (
    ACTION,
    PROMPTED,
    kind_value,
    object_forms,
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
    other = next((one for one in objects if not _is_named(action, one, context)), None)
    if vouches(record, context) and other is None:
        return ActionAttestation(action, ActionRung.REQUESTED, "prompt", record)
    # An approval of earlier objects is none of an object that only untrusted text names.
    tainted = next((one for one in objects if _rung(one) is Rung.TAINTED), None)
    if tainted is not None:
        return ActionAttestation(action, ActionRung.TAINTED, "tainted", None, tainted)
    established = context.established.get(Destination("action", action))
    if vouches(established, context):
        return ActionAttestation(action, ActionRung.ESTABLISHED, "approved_before", established)
    return ActionAttestation(
        action, ActionRung.UNREQUESTED, _why_unrequested(record, other, context), record, other
    )


def _rung(target: Target) -> Rung | None:
    return None if target.attestation is None else target.attestation.rung


def _why_unrequested(record: LabelRecord | None, other: Target | None, context: Context) -> str:
    if record is not None and record.label is Integrity.UNTRUSTED:
        return "refused"
    if vouches(record, context) and other is not None:
        return "other_object"
    channel = context.values.get(PROMPTED)
    # The principal's record, not the session's: a client chooses its session id.
    return "no_prompt" if channel is None or channel.denied is None else "not_requested"


def _is_named(action: str, target: Target, context: Context) -> bool:
    """Return whether a prompt names an object, or no object of its kind."""
    text = target.destination.canonical
    if not _is_prompted(kind_value(action, object_kind(text)), context):
        return True
    return any(_is_prompted(object_value(action, f), context) for f in object_forms(text))


def _is_prompted(value: str, context: Context) -> bool:
    known = context.values.get(value)
    return known is not None and vouches(known.prompt, context)
