"""``guard learn``: what recorded runs would change in a policy, with a count behind every line.

The runs are replayed under the policy as it is.  Proposals are:

* A receiver that was asked about, that a person approved each time, and that in no run came from
  text that nobody vouches for.  It becomes ``established`` for the one principal and tool that sent
  there often enough.  It becomes ``allow`` only where several did, none of them often.
* A send: a tool that nobody has mapped, whose calls a person approved, and whose receivers were
  addresses in every call.
* A directory: a part of a mapped read's results that held later receivers, and always exactly one
  address.  It has no ``writer``: a person has to state that only its owner can cause an entry.

Receivers and directories end with a day.  Facts that only a person can know (the effect of a tool
without receivers, the writer of a field of a tool that nobody has mapped) become comments.

Support for an entry is counted in sessions: a recording of a week is one run.

INVARIANT (nothing from taint): a session in which a call had a tainted receiver, or was blocked, or
failed, teaches nothing at all.  A receiver of such a session is proposed from no other session
either, and a field that held one is not a directory.

INVARIANT (a person's word): only a call that was released by a person's yes teaches a receiver.  A
no, or a question that no yes followed in its session, removes the receiver from every proposal.

INVARIANT (outsiders enter themselves): nothing in the results of a tool whose mapping has messages
or links, and no declared field, is proposed as a directory.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from guard.core.model import Destination, DestinationStatus, Json, Role
from guard.pipeline.classification import classify
from guard.policy.proposal import ListedTool, usable
from guard.provenance.result_documents import fields_document, roots_of
from guard.replay.run import Replay, fresh_store, recorded_call
from guard.values.canonical import read_destinations
from guard.values.patterns import PatternSet, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.replay.traces import Call, Run

Judged: TypeAlias = "tuple[Call, dict[str, Any]]"
"""A recorded call, and what the replay says of it."""
UNTAUGHT: Final = frozenset({"tainted", "denied"})
"""Rungs of receivers that make a run teach nothing."""
VOUCHED: Final = frozenset({"listed", "granted", "prompted", "established"})
GRANTED: Final = "granted"
"""Reason of a recorded call that a person approved."""
REFUSED: Final = "approval_denied"
"""Reason of one that a person refused."""
UNMAPPED: Final = "tool_unmapped"
READS: Final = frozenset({Role.RETRIEVE, Role.LIST})
"""Roles of the tools whose results may have a directory in them."""
ADDRESSED: Final = frozenset({"mail", "url"})
"""Kinds of receivers that are whole in themselves."""
FIELD_DEPTH: Final = 8
_MEMBER: Final = re.compile(r"\['([A-Za-z_]\w*)'\]", re.ASCII)
_INDEX: Final = re.compile(r"\[\d+\]", re.ASCII)
_FIRST: Final = re.compile(r"\$\['([A-Za-z_]\w*)'\]", re.ASCII)


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
    fields: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tools, and the parts of their results in which a later receiver stood, by sessions."""
    mixed: set[tuple[str, str]] = field(default_factory=set)
    """Parts of results in which something else than one address stood, or a receiver of a session
    that teaches nothing, or of which the policy says who writes them."""


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
        found.mixed.update(_mixed(run))
        found.mixed.update(_declared(policy, run))
        sessions: dict[str, list[Judged]] = defaultdict(list)
        for call, line in zip(run.calls, islice(lines, len(run.calls)), strict=True):
            sessions[call.session].append((call, line))
        for judged in sessions.values():
            found.sessions += 1
            for tool, receiver in _unapproved(policy, run, judged, refused):
                found.tainted.add(receiver)
                found.refused.add(tool)
            if any(_teaches_nothing(line) for _, line in judged):
                found.skipped += 1
                _warn(found, policy, run, judged)
            else:
                _take(found, policy, run, judged)
    return found


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


def _mixed(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the parts of results in which something else than one address stands."""
    for call in run.calls:
        for path, text in _leaves(_document(call.result), "$", 0):
            read = read_destinations(text)
            if len(read) != 1 or not _is_whole(read[0].kind) or any(c.isspace() for c in text):
                yield call.tool, path


def _declared(policy: Policy, run: Run) -> Iterator[tuple[str, str]]:
    """Yield the parts of results of which the policy says who writes them."""
    for call in run.calls:
        mapping = policy.mapping(call.tool)
        for root in roots_of(call.result) if mapping is not None else ():
            document = fields_document(root, mapping)
            for one in mapping.fields if mapping is not None else ():
                for path, _ in one.path.find(document):
                    plain = _INDEX.sub("[*]", _MEMBER.sub(r".\1", path))
                    yield call.tool, plain
                    # A lone item is read as a list of one.
                    yield call.tool, plain.replace("$[*]", "$", 1)


def _unapproved(
    policy: Policy, run: Run, judged: Sequence[Judged], refused: AbstractSet[str]
) -> set[tuple[str, str]]:
    """Return the tools and receivers of a session that were refused, or that no yes followed."""
    no: set[tuple[str, str]] = set()
    waiting: set[tuple[str, str]] = set()
    for call, _ in judged:
        for target in classify(policy, recorded_call(run, call, call.ts or 0.0)).targets:
            one = call.tool, target.destination.canonical
            if call.id in refused or REFUSED in call.reasons:
                no.add(one)
            elif _is_approved(call):
                waiting.discard(one)
            elif call.verdict and not call.forwarded:
                waiting.add(one)
    return no | waiting


def _is_approved(call: Call) -> bool:
    """Return whether a person's yes released a call."""
    return call.forwarded and GRANTED in call.reasons


def _warn(found: Learned, policy: Policy, run: Run, judged: Sequence[Judged]) -> None:
    """Note the receivers of a session that teaches nothing, and where they had stood."""
    before: list[Call] = []
    for call, _ in judged:
        for target in classify(policy, recorded_call(run, call, call.ts or 0.0)).targets:
            if target.status in {DestinationStatus.EXTERNAL, DestinationStatus.DENIED}:
                found.tainted.add(target.destination.canonical)
                found.mixed.update(_sources(before, target.destination.canonical))
        before.append(call)


def _take(found: Learned, policy: Policy, run: Run, judged: Sequence[Judged]) -> None:
    asked: set[tuple[str, str, str]] = set()
    sources: set[tuple[str, str]] = set()
    before: list[Call] = []
    for call, line in judged:
        classified = classify(policy, recorded_call(run, call, call.ts or 0.0))
        outside = [t for t in classified.targets if t.status is DestinationStatus.EXTERNAL]
        if classified.mapping is None:
            found.unmapped[call.tool] += 1
        if not _is_approved(call):
            pass
        elif classified.mapping is None:
            found.approved[call.tool] += 1
            addressed = {_argument(t.path) for t in outside if _is_whole(t.destination.kind)}
            found.sends[call.tool].update(addressed)
        elif classified.role is Role.SEND and line["action"] == "ask":
            principal = classified.call.identity.principal
            stand = [t.destination.canonical for t in outside if _can_stand(t.destination)]
            asked |= {(principal, call.tool, receiver) for receiver in stand}
        for target in outside if call.forwarded else ():
            sources |= set(_sources(before, target.destination.canonical))
        before.append(call)
    found.receivers.update(asked)
    found.fields.update(sources)


def _argument(path: str) -> str:
    """Return the argument that a normalised path (``$['to'][0]``) lies in, as policies write it."""
    found = _FIRST.match(path)
    return f"$.{found[1]}" if found else ""


def _is_whole(kind: str) -> bool:
    return kind in ADDRESSED


def _can_stand(destination: Destination) -> bool:
    """Return whether a receiver can stand in ``allow`` as exactly this one."""
    try:
        pattern = parse_pattern(destination.canonical)
    except ValueError:
        return False
    return _is_whole(destination.kind) and PatternSet((pattern,))(destination)


def _sources(before: Sequence[Call], receiver: str) -> Iterator[tuple[str, str]]:
    """Yield the tools, and the places in their results, where a receiver had stood."""
    for call in before:
        for path, text in _leaves(_document(call.result), "$", 0):
            if text.casefold() == receiver.casefold():
                yield call.tool, path


def _document(result: Json) -> Json:
    if isinstance(result, str):
        try:
            return json.loads(result)
        except ValueError:
            return None
    return result


def _leaves(value: Json, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict) and depth < FIELD_DEPTH:
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if name.isidentifier() else path, depth + 1)
    elif isinstance(value, list) and depth < FIELD_DEPTH:
        for item in value:
            yield from _leaves(item, f"{path}[*]", depth + 1)


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
    directories = _directories(policy, found, at_least)
    sends = {t: c for t, c in sorted(found.sends.items()) if _is_send(t, c, found)}
    yield from _as_directories(directories, until)
    yield "tools:" if sends else "tools: []"
    for tool, paths in sends.items():
        counts = ", ".join(f"{path} in {n}" for path, n in sorted(paths.items()))
        yield f"  # {found.approved[tool]} approved calls; an address in {counts}"
        yield f"  - match: [{json.dumps(tool)}]"
        yield "    role: send"
        yield f"    destinations: {json.dumps(sorted(paths))}"
    yield from _comments(found, {*sends, *directories}, at_least)


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


def _directories(policy: Policy, found: Learned, at_least: int) -> dict[str, list[tuple[str, int]]]:
    """Return the parts of mapped reads' results that have held nothing but later receivers."""
    places: dict[str, list[tuple[str, int]]] = {}
    for place, sessions in found.fields.most_common():
        tool, path = place
        mapping = policy.mapping(tool)
        if mapping is None or mapping.server or mapping.role not in READS or mapping.store:
            continue
        if mapping.reading.messages is not None or mapping.reading.links is not None:
            continue
        declared = any(one.path.text == path for one in mapping.fields)
        if sessions >= at_least and place not in found.mixed and not declared:
            places.setdefault(tool, []).append((path, sessions))
    return places


def _as_directories(directories: dict[str, list[tuple[str, int]]], until: str) -> Iterator[str]:
    yield "directories:" if directories else "directories: []"
    if directories:
        yield "  # Add `writer: owner` where only its owner can cause an entry; else leave it out."
    for tool, fields in sorted(directories.items()):
        for path, sessions in fields:
            parts = {"tool": tool, "path": path, "until": until}
            entry = ", ".join(f"{name}: {json.dumps(value)}" for name, value in parts.items())
            counted = f"held later receivers, and nothing else, in {sessions} sessions"
            yield f"  - {{{entry}}}  # {counted}"


def _is_send(tool: str, paths: Counter[str], found: Learned) -> bool:
    """Return whether each approved call of a tool had an address, and none was refused."""
    if tool in found.refused:
        return False
    plain = usable([ListedTool(tool, {})])[0] != []
    every = bool(paths) and max(paths.values()) == found.approved[tool]
    return plain and every and all(path.startswith("$.") for path in paths)


def _comments(found: Learned, sends: set[str], at_least: int) -> Iterator[str]:
    open_ones = [(tool, n) for tool, n in found.unmapped.most_common() if tool not in sends]
    if open_ones:
        yield "# Tools without an address in every call: only you know what they do."
    for tool, calls in open_ones:
        yield f"#   {json.dumps(tool)}: {calls} calls"
    fields = [
        (place, n)
        for place, n in found.fields.most_common()
        if n >= at_least and place not in found.mixed and place[0] not in sends
    ]
    if fields:
        yield "# Where receivers had stood before: a directory, if only its owner writes the field."
    for (tool, path), sessions in fields:
        parts = f"{{path: {json.dumps(path)}, as: directory}}"
        yield f"#   {json.dumps(tool)}: {parts}, in {sessions} sessions"
