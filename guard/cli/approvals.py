"""``guard approvals …``: calls that were asked about, and a person's answers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from guard.cli.answering import Answers, answering
from guard.cli.outcome import plain
from guard.cli.running import minute, now
from guard.core.errors import InputError
from guard.provenance.approvals import Grant, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.core.model import Json
    from guard.provenance.approvals import ApprovalRequest, AskedCall, AskedReceiver

ORDERS: Final = (
    ("served", "served"),
    ("authenticated", "authenticated"),
    ("rose", "rose"),
    ("fell", "fell"),
    ("fell_out", "fell out"),
)
RANKED: Final = frozenset({"served", "authenticated"})
_PERIOD: Final = re.compile(r"(\d{1,5})\s?([mhd])")
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}
Decision = Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")]


@answering(records=True)
def grant(
    people: Answers,
    decision: Decision,
    remember: Annotated[
        bool, typer.Option("--remember", help="Its receivers are good from now on.")
    ] = False,
    scope: Annotated[
        Scope, typer.Option(help="For whom they are remembered, with this tool.")
    ] = Scope.PRINCIPAL,
    until: Annotated[
        str,
        typer.Option(help="For how long: `12h`, `30d`, or a date; the policy's period at most."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")] = False,
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once.

    With `--remember` the same principal may send to its receivers again with the same tool,
    unasked.  What untrusted text named a receiver is shown first.
    """
    if until and not remember:
        raise InputError("--until says how long is remembered; give --remember as well")
    given = Grant()
    if remember and scope is not Scope.CALL:
        asked = people.asked(decision)
        given = Grant(scope, _end(until, now(), asked.remembered_for))
        typer.echo("\n".join(_shown(asked)))
        if not yes:
            whose = f"{plain(asked.principal)}, {given.scope}, until {minute(given.until)}"
            typer.confirm(f"remember these receivers ({whose})?", abort=True)
    asked = people.grant(decision, given)
    if not asked.released:
        typer.echo("approved; a second person has to approve it as well")
        return
    tools = ", ".join(plain(call.tool) for call in asked.calls)
    typer.echo(
        f"granted: {tools} for principal {plain(asked.principal)}, session {plain(asked.session)}; "
        f"the same call goes out once, within {int(asked.expires - asked.at)} s"
    )


@answering(records=False)
def show(people: Answers, decision: Decision) -> None:
    """Show who asks: tool, receivers and where each came from, what would leave."""
    typer.echo("\n".join(_shown(people.asked(decision))))


@answering(records=True)
def deny(people: Answers, decision: Decision) -> None:
    """Refuse a call that waits: its id can no longer be approved."""
    people.deny(decision)
    typer.echo("denied")


@answering(records=True)
def revoke(
    people: Answers,
    mark: Annotated[str, typer.Argument(help="Mark of an established receiver, in hex.")],
) -> None:
    """Take an established receiver away: the next send to it is judged anew."""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", mark):
        raise typer.BadParameter("a mark is hexadecimal")
    was_there = people.revoke(mark)
    typer.echo("revoked" if was_there else "no receiver is established under this mark")


@answering(records=True)
def resume(
    people: Answers,
    principal: Annotated[str, typer.Argument(help="A principal that asked too often.")],
) -> None:
    """End the pause of a principal (`approvals: {pause: …}` in the policy)."""
    was_paused = people.resume(principal)
    typer.echo("it may ask again" if was_paused else "this principal is not paused")


@answering(records=False)
def list_approvals(people: Answers) -> None:
    """List the calls that wait for an answer, and the receivers that may be sent to again."""
    waiting, remembered = list(people.waiting()), list(people.remembered())
    if not waiting and not remembered:
        typer.echo("nothing waits for an answer", err=True)
    for request in waiting:
        call = request.calls[0]
        parts = [request.principal, call.tool, *(one.receiver for one in call.receivers)]
        ends = f"waits until {minute(request.expires)}"
        if request.people > 1:
            ends += f", for {'a second person' if request.first else 'two people'}"
        typer.echo(f"{plain(call.decision)}  " + "  ".join(map(plain, (*parts, ends))))
    for one in remembered:
        parts = [one.principal, one.tool, one.kind, one.receiver]
        ends = f"{one.channel} until {minute(one.until)}"
        typer.echo(f"{one.mark}  " + "  ".join(map(plain, (*parts, ends))))


def _end(until: str, at: float, longest: int) -> float:
    """Return when ends what is to be remembered, in seconds since the epoch.

    Raises:
        InputError: the words say no time, or one that has passed.
    """
    if not until:
        return at + longest
    period = _PERIOD.fullmatch(until.strip().lower())
    if period is not None:
        end = at + int(period[1]) * _SECONDS[period[2]]
    else:
        try:
            date = datetime.fromisoformat(until)
        except ValueError as error:
            raise InputError(f"`{until}` is no time: write `12h`, `30d` or `2030-12-31`") from error
        end = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if end <= at:
        raise InputError(f"`{until}` has passed")
    return min(end, at + longest)


def _shown(asked: ApprovalRequest) -> Iterator[str]:
    """Yield the lines that tell a person what is asked."""
    yield f"principal: {plain(asked.principal)}, session {plain(asked.session)}"
    yield f"asked: {minute(asked.at)}, waits until {minute(asked.expires)}"
    for call in asked.calls:
        yield from _call_shown(call)


def _call_shown(call: AskedCall) -> Iterator[str]:
    yield f"tool: {plain(call.tool)} at {plain(call.server)} {plain(call.upstream)}".rstrip()
    yield f"why: {', '.join(call.reasons)}"
    if call.definition:
        yield "definition: changed, and nobody has approved it (`guard tools list`)"
    for one in call.receivers:
        yield from _receiver_shown(one)
    yield f"leaves: {plain(call.excerpt)}"


def _receiver_shown(one: AskedReceiver) -> Iterator[str]:
    yield f"receiver: {plain(one.kind)} {plain(one.receiver)} ({plain(one.rung)}: {one.why})"
    if one.channel:
        where = f"call {one.call} of " if one.call >= 0 else ""
        source = f"`{plain(one.source)}`" if one.source else "no tool"
        yield f"  from: {one.channel} of {source}, {where}{one.session} session, {minute(one.at)}"
    if one.text:
        yield f"  text: {plain(one.text)}"
    if one.selection is not None:
        yield from _selection_shown(one.selection)
    if one.sends:
        last = f"last {minute(one.sent[-1].at)} with `{plain(one.sent[-1].tool)}`"
        yield f"  sent there before: {one.sends} times, {last}"
    else:
        yield "  sent there before: never, as far as is on record"


def _selection_shown(told: Mapping[str, Json]) -> Iterator[str]:
    """Yield the order of a memory's answer, the authenticated one, and whose doing it is."""
    yield f"  memory: {plain(told['store'])}, {told['reason']}"
    if "served" not in told:
        return
    for name, title in ORDERS:
        found = [f"{n}. {plain(one)}" for n, one in enumerate(told[name], 1)]
        if name not in RANKED:
            found = [plain(one) for one in told[name]]
        yield f"  {title}: {', '.join(found) or 'nothing'}"
    writer = told["writer"]
    if writer is None:
        yield "  writer: no single one, as far as was tried"
    else:
        who = plain(writer["principal"]) or "nobody who is known"
        where = f"session {writer['session']}, call {writer['call']}, {minute(writer['at'])}"
        yield f"  writer: {who}, {where}; without this structure the order is the authenticated one"
