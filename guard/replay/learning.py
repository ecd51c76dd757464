"""``guard learn``: what recorded runs would change in a policy, with a count behind every line.

The runs are replayed under the policy as it is.  Proposals are:

* A receiver that was asked about, that a person approved each time, and that in no run came from
  text that nobody vouches for.  It becomes ``established`` for the one principal and tool that sent
  there often enough.  It becomes ``allow`` only where several did, none of them often.
* A send: a tool that nobody has mapped, whose calls a person approved, and whose receivers were
  addresses in every call.

Receivers end with a day.  Tools without receivers, of which only a person can know the effect,
become comments.  No directory is proposed: only a person can state that its owner alone writes it.

Support for an entry is counted in sessions: a recording of a week is one run.

INVARIANT (nothing from taint): a session in which a call had a tainted receiver, or was blocked, or
failed, teaches nothing at all.  A receiver of such a session is proposed from no other session
either.

INVARIANT (a person's word): only a call that was released by a person's yes teaches a receiver.  A
no, or a question that no yes followed in its session, removes the receiver from every proposal.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.model import Destination, DestinationStatus, Role
from guard.pipeline.classification import classify
from guard.policy.proposal import ListedTool, usable
from guard.replay.run import Replay, fresh_store, recorded_call
from guard.values.patterns import PatternSet, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from guard.core.calls import ClassifiedCall
    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.replay.traces import Call, Run

UNTAUGHT: Final = frozenset({"tainted", "denied"})
"""Rungs of receivers that make a run teach nothing."""
VOUCHED: Final = frozenset({"listed", "granted", "prompted", "established"})
GRANTED: Final = "granted"
"""Reason of a recorded call that a person approved."""
REFUSED: Final = "approval_denied"
"""Reason of one that a person refused."""
UNMAPPED: Final = "tool_unmapped"
ADDRESSED: Final = frozenset({"mail", "url"})
"""Kinds of receivers that are whole in themselves."""
_FIRST: Final = re.compile(r"\$\['([A-Za-z_]\w*)'\]", re.ASCII)


class Judged(NamedTuple):
    """A recorded call."""

    call: Call
    line: dict[str, Any]
    """Output of the replay."""
    classified: ClassifiedCall

    @property
    def is_approved(self) -> bool:
        """True if a person's yes released it."""
        return self.call.forwarded and GRANTED in self.call.reasons


@dataclass(slots=True)
class Learned:
    """Entries proposed from the runs."""

    sessions: int = 0
    skipped: int = 0
    """Sessions that teach nothing."""
    receivers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Principals, tools and the receivers that a person approved, by sessions."""
    tainted: set[str] = field(default_factory=set)
    """Receivers that a session which teaches nothing has, or that no person's yes released."""
    sends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Arguments of tools that nobody has mapped in which addresses stood, by calls."""
    unmapped: Counter[str] = field(default_factory=Counter)
    """Tools that nobody has mapped, by calls."""
    approved: Counter[str] = field(default_factory=Counter)
    """Calls among them that a person approved."""
    refused: set[str] = field(default_factory=set)
    """Tools of which a call was refused, or that no person's yes released."""


async def learn(
    policy: Policy,
    runs: Sequence[Run],
    url: str,
    detectors: Sequence[Detector],
    refused: AbstractSet[str] = frozenset(),
) -> Learned:
    """Replay runs and return what they teach.

    Args:
        policy: as it is in force.
        runs: as recorded.
        url: of a store; the replay has a namespace of its own.
        detectors: as in live traffic.
        refused: ids of decisions that a person denied, as the audit log has them.
    """
    texts: list[str] = []
    async with fresh_store(url, policy.limits) as store:
        await Replay(policy, store, detectors).run(runs, texts.append)
    found = Learned()
    # In the order of the runs: two of them may have the same id, as those of one tenant do.
    lines = map(json.loads, texts)
    for run in runs:
        sessions: dict[str, list[Judged]] = defaultdict(list)
        for call, line in zip(run.calls, islice(lines, len(run.calls)), strict=True):
            classified = classify(policy, recorded_call(run, call, call.ts or 0.0))
            sessions[call.session].append(Judged(call, line, classified))
        for judged in sessions.values():
            _learn(found, judged, refused)
    return found


def _learn(found: Learned, judged: Sequence[Judged], refused: AbstractSet[str]) -> None:
    """Take what one session teaches."""
    found.sessions += 1
    for tool, receiver in _unapproved(judged, refused):
        found.tainted.add(receiver)
        found.refused.add(tool)
    if not any(_teaches_nothing(one.line) for one in judged):
        _take(found, judged)
        return
    found.skipped += 1
    unlisted = {DestinationStatus.EXTERNAL, DestinationStatus.DENIED}
    targets = (target for one in judged for target in one.classified.targets)
    found.tainted.update(t.destination.canonical for t in targets if t.status in unlisted)


def _teaches_nothing(line: dict[str, Any]) -> bool:
    return line["action"] == "block" or any(
        _is_tainted(
            reason.get("evidence", {}).get("targets", ()), mapped=reason["code"] != UNMAPPED
        )
        for reason in line["reasons"]
    )


def _is_tainted(targets: Sequence[dict[str, Any]], *, mapped: bool) -> bool:
    """Return whether a receiver of a call is tainted.

    Of a tool that nobody has mapped an argument is read in two ways, as it stands and decoded; one
    that is vouched for as it stands is none.  Only its place is learned, and no receiver.
    """
    vouched = {t["path"] for t in targets if not mapped and t.get("rung") in VOUCHED}
    return any(t.get("rung") in UNTAUGHT and t["path"] not in vouched for t in targets)


def _unapproved(judged: Sequence[Judged], refused: AbstractSet[str]) -> set[tuple[str, str]]:
    """Return the tools and receivers of a session that were refused, or that no yes followed."""
    no: set[tuple[str, str]] = set()
    waiting: set[tuple[str, str]] = set()
    for one in judged:
        call = one.call
        sent = {(call.tool, target.destination.canonical) for target in one.classified.targets}
        if call.id in refused or REFUSED in call.reasons:
            no |= sent
        elif one.is_approved:
            waiting -= sent
        elif call.verdict and not call.forwarded:
            waiting |= sent
    return no | waiting


def _take(found: Learned, judged: Sequence[Judged]) -> None:
    asked: set[tuple[str, str, str]] = set()
    for one in judged:
        classified, tool = one.classified, one.call.tool
        outside = [t for t in classified.targets if t.status is DestinationStatus.EXTERNAL]
        if classified.mapping is None:
            found.unmapped[tool] += 1
        if not one.is_approved:
            continue
        if classified.mapping is None:
            found.approved[tool] += 1
            addressed = {_argument(t.path) for t in outside if t.destination.kind in ADDRESSED}
            found.sends[tool].update(addressed)
        elif classified.role is Role.SEND and one.line["action"] == "ask":
            principal = classified.call.identity.principal
            stand = [t.destination.canonical for t in outside if _can_stand(t.destination)]
            asked |= {(principal, tool, receiver) for receiver in stand}
    found.receivers.update(asked)


def _argument(path: str) -> str:
    """Return the argument that a normalised path (``$['to'][0]``) lies in, as policies write it."""
    found = _FIRST.match(path)
    return f"$.{found[1]}" if found else ""


def _can_stand(destination: Destination) -> bool:
    """Return whether a receiver can stand in ``allow`` as exactly this one."""
    try:
        pattern = parse_pattern(destination.canonical)
    except ValueError:
        return False
    return destination.kind in ADDRESSED and PatternSet((pattern,))(destination)


def overlay_text(policy: Policy, name: str, found: Learned, *, until: str, at_least: int) -> str:
    """Return the policy file to load beside the policy.

    Args:
        policy: as it is in force.
        name: of the new file's policy.
        found: what the runs teach.
        until: last day of the ``allow`` entries, ``2027-01-31``.
        at_least: sessions that must support an entry.
    """
    return "\n".join([*_overlay(policy, name, found, until, at_least), ""])


def _overlay(policy: Policy, name: str, found: Learned, until: str, at_least: int) -> Iterator[str]:
    taught = found.sessions - found.skipped
    yield f"# Proposed by `guard learn` from {taught} recorded sessions; {found.skipped} more teach"
    yield "# nothing, as a call in them was blocked or had a tainted receiver."
    yield "version: 1"
    yield f"name: {json.dumps(name)}"
    yield f"mode: {policy.mode.value}"
    yield from _receivers(found, until, at_least)
    sends = {t: c for t, c in sorted(found.sends.items()) if _is_send(t, c, found)}
    yield "tools:" if sends else "tools: []"
    for tool, paths in sends.items():
        counts = ", ".join(f"{path} in {n}" for path, n in sorted(paths.items()))
        yield f"  # {found.approved[tool]} approved calls; an address in {counts}"
        yield f"  - match: [{json.dumps(tool)}]"
        yield "    role: send"
        yield f"    destinations: {json.dumps(sorted(paths))}"
    others = [(tool, n) for tool, n in found.unmapped.most_common() if tool not in sends]
    if others:
        yield "# Tools without an address in every call: only you know what they do."
    for tool, calls in others:
        yield f"#   {json.dumps(tool)}: {calls} calls"


def _receivers(found: Learned, until: str, at_least: int) -> Iterator[str]:
    """Yield the receivers, each in the narrowest entry that its sessions support."""
    known = {one: n for one, n in found.receivers.items() if one[2] not in found.tainted}
    often = {one: n for one, n in known.items() if n >= at_least}
    of_many: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for one in known.keys() - often.keys():
        of_many[one[2]].add(one)
    sessions = {to: sum(known[one] for one in who) for to, who in of_many.items()}
    allowed = sorted(
        (to for to in of_many if sessions[to] >= at_least and len(of_many[to]) > 1),
        key=lambda to: (-sessions[to], to),
    )
    yield "established:" if often else "established: []"
    for (principal, tool, to), n in sorted(often.items(), key=lambda one: (-one[1], one[0])):
        parts = {"to": to, "tool": tool, "principal": principal, "until": until}
        entry = ", ".join(f"{name}: {json.dumps(value)}" for name, value in parts.items())
        yield f"  - {{{entry}}}  # approved in {n} sessions"
    yield "allow:" if allowed else "allow: []"
    for to in allowed:
        entry = f"{{to: {json.dumps(to)}, until: {json.dumps(until)}}}"
        who = len({one[0] for one in of_many[to]})
        yield f"  - {entry}  # approved in {sessions[to]} sessions of {who} principals"


def _is_send(tool: str, paths: Counter[str], found: Learned) -> bool:
    """Return whether each approved call of a tool had an address, and none was refused."""
    if tool in found.refused:
        return False
    plain = usable([ListedTool(tool, {})])[0] != []
    every = bool(paths) and max(paths.values()) == found.approved[tool]
    return plain and every and all(path.startswith("$.") for path in paths)
