"""``guard approvals …``: calls that were asked about, and a person's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from guard.cli.admin_api import AdminApi, NotDoneError, by_api
from guard.cli.outcome import plain
from guard.cli.running import minute, moment, now
from guard.core.errors import InputError
from guard.core.model import Role
from guard.policy.field_types import duration_seconds
from guard.provenance.approvals import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Decision = Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")]
_REMEMBERED: Final = {
    "--remember": "these receivers",
    "--tool": "this tool with these kinds of arguments",
    "--read-only": "that this tool only reads",
    "--directory": "this tool on files below this directory",
}
MAP: Final = "/api/policies/map"
REQUESTS: Final = "/api/approvals"
REQUEST: Final = "/api/approvals/{tenant}/{decision}"


@by_api(f"GET {REQUEST}", f"POST {REQUEST}", f"POST {MAP}", records=True)
def grant(
    api: AdminApi,
    decision: Decision,
    remember: Annotated[
        bool, typer.Option("--remember", help="Its receivers are good from now on.")
    ] = False,
    scope: Annotated[
        Scope, typer.Option(help="Scope of the remembered receivers, with this tool.")
    ] = Scope.PRINCIPAL,
    until: Annotated[
        str,
        typer.Option(help="For how long: `12h`, `30d`, or a date; the policy's period at most."),
    ] = "",
    limit: Annotated[
        str, typer.Option(help="A payment: highest amount that is remembered, in its currency.")
    ] = "",
    errand: Annotated[
        bool,
        typer.Option(
            "--errand",
            help="Its recipients are good until the next prompt, with every tool of the service; "
            "with `--scope session` for the session. Other requests of the errand are answered "
            "too, but for those whose recipient untrusted text named.",
        ),
    ] = False,
    tool: Annotated[
        bool,
        typer.Option(
            "--tool",
            help="An unmapped tool: further calls with these kinds of arguments are good.",
        ),
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="An unmapped tool: it only reads.")
    ] = False,
    directory: Annotated[
        bool,
        typer.Option("--directory", help="Files: further files below the same directory are good."),
    ] = False,
    map_as: Annotated[
        Role | None,
        typer.Option("--map-as", help="An unmapped tool: begin a draft that maps it so."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")] = False,
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once.

    With `--remember` the same principal may send to its receivers again with the same tool,
    unasked.  What untrusted text named a receiver is shown first.  `--tool` and `--read-only`
    answer for a tool that the policy does not map, until its definition changes.  An answer that
    cannot be kept says so, and nothing is released.
    """
    flags = {"--remember": remember, "--errand": errand, "--tool": tool, "--read-only": read_only}
    flags["--directory"] = directory
    given = [name for name, is_given in flags.items() if is_given]
    if until and not given:
        raise InputError("--until says how long is remembered; give --remember as well")
    if limit and given != ["--remember"]:
        raise InputError("--limit is the amount that is remembered; give --remember as well")
    if len(given) > 1:
        raise InputError(f"give one of {', '.join(given)}")
    if map_as is not None:
        draft = api.post(MAP, {"tenant": api.tenant, "decision": decision, "role": map_as.value})
        typer.echo(f"nothing is released; draft on the console: /policies/drafts/{draft['id']}")
        return
    asked = api.get(REQUEST, decision=decision)
    body: dict[str, object] = {"answer": "once"}
    if errand or (given and scope is not Scope.CALL):
        at = now()
        ends = _end(until, at, asked["remembered_for"])
        if not errand:
            typer.echo("\n".join(_shown(asked)))
        if not (errand or yes):
            whose = f"{plain(asked['principal'])}, {scope}, until {minute(ends)}"
            typer.confirm(f"remember {_REMEMBERED[given[0]]} ({whose})?", abort=True)
        answer = given[0].strip("-").replace("-", "_")
        body = {"answer": answer, "scope": scope.value, "seconds": max(1, int(ends - at))}
        body |= {"limit": limit} if limit else {"whole_errand": errand}
    done = api.post(REQUEST, body, decision=decision)
    _tell_granted(asked, released=done["released"])


def _tell_granted(asked: Mapping[str, Any], *, released: bool) -> None:
    if not released:
        typer.echo("approved; a second person has to approve it as well")
        return
    tools = ", ".join(plain(call["tool"]) for call in asked["calls"])
    typer.echo(
        f"granted: {tools} for principal {plain(asked['principal'])}, "
        f"session {plain(asked['session'])}; "
        f"the same call goes out once, within {int(asked['expires'] - asked['at'])} s"
    )


@by_api(f"GET {REQUEST}")
def show(api: AdminApi, decision: Decision) -> None:
    """Show who asks: tool, receivers and where each came from, what would leave."""
    asked = api.get(REQUEST, decision=decision)
    typer.echo("\n".join(_shown(asked)))
    if asked["mapping"]:
        typer.echo("to map it, edit these lines and put them into the policy:")
        typer.echo("\n".join(map(plain, asked["mapping"].splitlines())))


@by_api(f"POST {REQUEST}", records=True)
def deny(api: AdminApi, decision: Decision) -> None:
    """Refuse a call that waits: its id can no longer be approved."""
    api.post(REQUEST, {"answer": "deny"}, decision=decision)
    typer.echo("denied")


@by_api("POST /api/pauses/end", records=True)
def resume(
    api: AdminApi,
    principal: Annotated[str, typer.Argument(help="A principal that asked too often.")],
) -> None:
    """End the pause of a principal (`approvals: {pause: …}` in the policy)."""
    done = _done(api, "/api/pauses/end", principal=principal)
    typer.echo("it may ask again" if done else "this principal is not paused")


@by_api(f"GET {REQUESTS}")
def list_approvals(api: AdminApi) -> None:
    """List the questions that wait for an answer: one per errand, with its requests."""
    found = api.get(REQUESTS)
    if not found["requests"]:
        typer.echo("nothing waits for an answer", err=True)
    waiting = {one["decision"]: one for one in found["requests"]}
    for group in found["questions"]:
        typer.echo(plain(f"{group['question']['sentence']} {group['question']['reason']}"))
        for decision in (*group["decisions"], *group["apart"]):
            asked = waiting[decision]
            call = asked["calls"][0]
            receivers = (one["receiver"] for one in call["receivers"])
            parts = [asked["principal"], call["tool"], *receivers]
            ends = f"waits until {minute(asked['expires'])}"
            if asked["people"] > 1:
                ends += f", for {'a second person' if asked['first'] else 'two people'}"
            if decision in group["apart"]:
                ends += ", answered apart: untrusted text named its recipient"
            typer.echo(f"{plain(decision)}  " + "  ".join(map(plain, (*parts, ends))))


@by_api("GET /api/grants")
def list_grants(api: AdminApi) -> None:
    """List every remembered answer: recipient, scope, author, end and last use."""
    found = api.get("/api/grants")["grants"]
    if not found:
        typer.echo("no answer is remembered", err=True)
    for one in found:
        used = f"last use {minute(one['used'])}" if one["used"] else "not used"
        by = f"by {one['by']}" if one["by"] else "author not on record"
        held = f"{one['scope']} until {minute(one['until'])}"
        tool = one["tool"] or f"{one['action']} at {one['service']}"
        parts = [one["principal"], tool, one["kind"], one["recipient"], held, by, used]
        typer.echo(f"{one['mark']}  " + "  ".join(map(plain, parts)))


@by_api("POST /api/grants/revoke", records=True)
def revoke(
    api: AdminApi,
    mark: Annotated[str, typer.Argument(help="Mark of a remembered answer, in hex.")],
) -> None:
    """Revoke a remembered answer: the next call that it let out is judged anew."""
    done = _done(api, "/api/grants/revoke", mark=mark)
    typer.echo("revoked" if done else "no answer is remembered under this mark")


def _done(api: AdminApi, path: str, **body: str) -> bool:
    """Return whether there was something to be done."""
    try:
        api.post(path, {"tenant": api.tenant, **body})
    except NotDoneError:
        return False
    return True


def _end(until: str, at: float, longest: int) -> float:
    """Return when ends what is to be remembered, in seconds since the epoch.

    Raises:
        InputError: the words say no time, or one that has passed.
    """
    if not until:
        return at + longest
    try:
        end = at + duration_seconds(until.strip().lower())
    except ValueError:
        try:
            end = moment(until)
        except ValueError as error:
            raise InputError(f"`{until}` is no time: write `12h`, `30d` or `2030-12-31`") from error
    if end <= at:
        raise InputError(f"`{until}` has passed")
    return min(end, at + longest)


def _shown(asked: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a request."""
    yield f"principal: {plain(asked['principal'])}, session {plain(asked['session'])}"
    yield f"asked: {minute(asked['at'])}, waits until {minute(asked['expires'])}"
    question = asked["question"]
    yield plain(f"{question['sentence']} {question['reason']} {question['private']}".strip())
    for one in question["choices"]:
        yield f"  {one['label']}: {one['covers']}"
    for call in asked["calls"]:
        names = (call[name] for name in ("tool", "server", "upstream"))
        tool, server, upstream = map(plain, names)
        yield f"tool: {tool} at {server} {upstream}".rstrip()
        yield f"rules: {', '.join(call['reasons'])}"
        if call["definition"]:
            yield "definition: changed, and nobody has approved it (`guard tools list`)"
        for one in call["receivers"]:
            yield from _receiver_shown(one)
        if call["more"]:
            yield f"and {call['more']} more receivers, for whom as much or more vouches"
        yield f"leaves: {plain(call['excerpt'])}"


def _receiver_shown(one: dict[str, Any]) -> Iterator[str]:
    yield f"receiver: {plain(one['kind'])} {plain(one['receiver'])}: {one['reason']}"
    if one["channel"]:
        where = f"call {one['call']} of " if one["call"] >= 0 else ""
        source = f"`{plain(one['source'])}`" if one["source"] else "no tool"
        when = f"{one['session']} session, {minute(one['at'])}"
        yield f"  from: {one['channel']} of {source}, {where}{when}"
    if one["text"]:
        yield f"  text: {plain(one['text'])}"
    if one["selection"] is not None:
        yield f"  memory: {plain(one['selection']['store'])}, {one['selection']['reason']}"
    if one["sends"]:
        last = one["sent"][-1]
        when = f"last {minute(last['at'])} with `{plain(last['tool'])}`"
        yield f"  sent there before: {one['sends']} times, {when}"
    else:
        yield "  sent there before: never, as far as is on record"
