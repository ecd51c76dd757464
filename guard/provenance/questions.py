"""The question to a person: one sentence, one reason, what leaves, and the answers.  Pure: no I/O.

Console, command line, elicitation, hooks and webhooks show this one component.  Sentences have no
reason codes, JSONPath or ids; codes are details.  Text of a call stands in quotation marks, on one
line and shortened, so that it cannot pose as the guard's own words.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.provenance.approvals import ApprovalRequest, AskedCall, AskedReceiver


class Answer(StrEnum):
    """Answer of a person to a request."""

    ONCE = "once"
    """Allow this call, once."""
    ERRAND = "errand"
    """Allow it, and its recipients for the rest of the errand or session over all tools."""
    REMEMBER = "remember"
    """Allow it, and its recipients for this principal and tool."""
    TOOL = "tool"
    """Allow it, and further calls of this unmapped tool with these kinds of arguments."""
    READ_ONLY = "read_only"
    """Allow it, and further calls of this unmapped tool, which only reads."""
    DIRECTORY = "directory"
    """Allow it, and this tool on further files below the same directory."""
    DENY = "deny"
    QUARANTINE = "quarantine"
    """Deny, open an incident from the text that named the recipients, and contain it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that a question offers."""

    answer: Answer
    label: str
    """Words of the button."""
    covers: str
    """Effect of the answer, in one sentence."""


@dataclass(frozen=True, slots=True)
class Item:
    """One recipient of a question, with the source of its value."""

    kind: str
    """Noun of its kind, with an article."""
    name: str
    reason: str
    excerpt: str = ""
    """Untrusted text around it; empty where it is not kept or is redacted."""
    tainted: bool = False
    """True if untrusted text named it: it is listed apart and not preselected."""


@dataclass(frozen=True, slots=True)
class Question:
    """Question about the calls of one errand."""

    sentence: str
    """Principal, action, and recipient or object."""
    reason: str
    leaves: str
    """Arguments of the calls; empty where they are redacted."""
    items: tuple[Item, ...]
    choices: tuple[Choice, ...]
    also: tuple[str, ...] = ()
    """Further reasons."""
    private: str = ""
    """Sentence about private text in the arguments; empty where there is none."""

    @property
    def excerpt(self) -> str:
        """Untrusted text around the first recipient that has one."""
        return next((one.excerpt for one in self.items if one.excerpt), "")

    def text(self) -> str:
        """Return the question as one line of plain text."""
        shown = f"The text: {quoted(self.excerpt)}." if self.excerpt else ""
        leaves = f"This leaves: {_line(self.leaves)}" if self.leaves else ""
        parts = (self.sentence, self.reason, shown, *self.also, self.private, leaves)
        return " ".join(part for part in parts if part)

    def document(self) -> dict[str, Any]:
        """Return the question as JSON values."""
        return {**asdict(self), "excerpt": self.excerpt, "text": self.text()}


ACTIONS: Final = {
    "send": ("send {object}", "a message", " to {reach}"),
    "pay": ("pay for {object}", "something", " to {reach}"),
    "buy": ("buy {object}", "something", " from {reach}"),
    "share": ("share {object}", "something", " with {reach}"),
    "invite": ("invite somebody to {object}", "something", " and reach {reach}"),
    "publish": ("publish {object}", "something", " at {reach}"),
    "delete": ("delete {object}", "something", " and reach {reach}"),
    "overwrite": ("change {object}", "something", " and reach {reach}"),
    "change_access": ("change who has access to {object}", "something", " and reach {reach}"),
    "change_credential": ("change the password or key of {object}", "an account", " at {reach}"),
    "change_setting": ("change the settings of {object}", "something", " and reach {reach}"),
    "execute": ("run {object}", "a program", " and reach {reach}"),
    "schedule": ("schedule {object}", "something", " with {reach}"),
    "react": ("react to {object}", "something", " and reach {reach}"),
}
"""Verb with its object, the object where none is named, and the recipients, by action."""
_ROLES: Final = {
    "send": ("send {object}", "something", " to {reach}"),
    "retrieve": ("open {object}", "a page or file", " at {reach}"),
    "save": ("save {object}", "something", " and reach {reach}"),
    "draft": ("draft {object}", "something", " for {reach}"),
}
"""Likewise by role, for tools without an action."""
CAUSES: Final = {
    "not_requested": "Nobody asked for this in the session.",
    "no_prompt": "No request of the user is known.",
    "other_object": "The user asked for this on something else.",
    "refused": "The user said not to do this.",
    "tainted": "Only text that an outsider can write names it.",
}
"""Sentence by cause of an action that nobody requested."""
KINDS: Final = {
    "mail": "an e-mail address",
    "phone": "a phone number",
    "url": "a web address",
    "host": "a server",
    "ip": "a network address",
    "handle": "an account or channel",
    "reply": "the thread of a message",
    "text": "a value",
    "number": "an amount",
}
_KIND: Final = "a recipient"
RUNGS: Final = {
    "listed": "the policy lists {it}",
    "granted": "a person has approved {it}",
    "prompted": "the user named {it}",
    "established": "a person has approved {it} before",
    "reply": "{it} belongs to somebody who wrote first",
    "remembered": "{it} comes from a memory, and no trusted source confirms it",
    "claimed": "only the agent says that the user named {it}",
    "unknown": "no record says where {it} comes from",
    "tainted": "{it} appears only in text that anybody can write",
    "denied": "the user or the operator has denied {it}",
}
"""Reason in words by rung of the attestation ladder."""
_UNTRACED: Final = "the source of {it} was not looked up"
_MEMORIES: Final = frozenset({"memory", "saved", "selection", "unreplayed"})
"""Channels of values that come from a memory."""
REASONS: Final = {
    "account_found": "It contains an account or card number.",
    "argument": "An argument has a value that the policy asks about.",
    "argument_missing": "An argument is missing that the policy requires.",
    "argument_undeclared": "It has an argument that the policy does not know.",
    "capacity_exceeded": "Its web addresses could carry a lot of hidden data.",
    "deny_loop": "Several calls like this one were refused shortly before.",
    "destination_allowed": "The policy asks about calls to this recipient.",
    "destination_denied": "The policy denies this recipient.",
    "destination_external": "The recipient is outside the organisation.",
    "destination_internal": "The policy asks about calls inside the organisation.",
    "destination_malformed": "The recipient cannot be read in one way only.",
    "destination_missing": "It names no recipient.",
    "egress_not_allowed": "This tool reaches somebody outside, and the policy does not expect it.",
    "injection_in_result": "A result contains text that tries to give orders.",
    "integrity_low": "The agent has read text that anybody can write.",
    "prefix_score": "The course of the session resembles known attacks.",
    "principal_rung_low": "The caller has not proven who it is.",
    "private_in_body": "It contains private text.",
    "private_in_pieces": "It adds to private text that this recipient already has in part.",
    "program_network": "The program opens network connections.",
    "program_not_listed": "The policy does not list this program.",
    "program_outside": "The program reaches files outside its folder.",
    "program_unread": "The program cannot be read in advance.",
    "rate_exceeded": "There were many calls like this lately.",
    "recall_before_send": "The agent read memory shortly before it sends.",
    "secret_found": "It contains a password or key.",
    "sequence": "The calls before this one make it risky.",
    "session_rung_low": "The session is not proven.",
    "suspicious_content": "It contains text that tries to give orders.",
    "too_large_to_inspect": "It is too large to be inspected.",
    "tool_contested": "Two servers offer a tool of this name.",
    "tool_definition_changed": "The description of this tool has changed, and nobody approved it.",
    "tool_role": "The policy asks about every call of this kind.",
    "tool_unmapped": "The policy does not know this tool.",
}
"""Sentence by reason code, where the recipient or the action is not the reason."""
OTHER: Final = "The policy asks a person about this call."
"""Sentence for every other reason code."""
_OF_FOLDER: Final = "Nobody has let this tool use that directory."
_UNMAPPED: Final = "tool_unmapped"
_ABOUT_RECIPIENTS: Final = ("provenance_", "selection_", "destination_external")
_NAMED: Final = 3
"""Number of recipients, or of calls, in a sentence."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME: Final = 120
"""Characters of a name in a sentence."""
_EXCERPT: Final = 300


def questioned(requests: Sequence[ApprovalRequest]) -> Question:
    """Return the question about the requests of one errand.

    Args:
        requests: of one principal; at least one.
    """
    first = requests[0]
    calls = [call for one in requests for call in one.calls]
    acts = [deed(call) for call in calls[:_NAMED]]
    more = len(calls) - len(acts)
    if more:
        acts.append(f"make {more} more {'call' if more == 1 else 'calls'}")
    acts = list(dict.fromkeys(acts))
    joined = acts[0] if len(acts) == 1 else f"{'; '.join(acts[:-1])}; and {acts[-1]}"
    who = quoted(first.principal) if first.principal else "An agent without a proven name"
    grave = sorted(calls, key=_gravity, reverse=True)
    reasons = tuple(dict.fromkeys(said for call in grave for said in reasons_of(call)))
    items = sorted(dict.fromkeys(map(_item, _receivers(calls))), key=lambda one: one.tainted)
    private = sorted({quoted(words_of(name)) for call in calls for name in call.private})
    return Question(
        sentence=f"{who} wants to {joined}.",
        reason=reasons[0],
        leaves=" ".join(call.excerpt for call in calls),
        items=tuple(items),
        also=reasons[1:],
        choices=tuple(choice for offer in OFFERS if (choice := offer(requests)) is not None),
        private=f"It contains private text that {' and '.join(private)} returned."
        if private
        else "",
    )


def redacted(requests: Sequence[ApprovalRequest]) -> Question:
    """Return a question without text of the calls, for channels that others may read."""
    hidden = [
        replace(
            one,
            calls=tuple(
                replace(
                    call,
                    excerpt="",
                    object="",
                    covered=tuple((kind, "") for kind, _ in call.covered),
                    folders=(),
                    receivers=tuple(replace(r, receiver="", text="") for r in call.receivers),
                )
                for call in one.calls
            ),
        )
        for one in requests
    ]
    return questioned(hidden)


def deed(call: AskedCall) -> str:
    """Return what a call does: verb, object and recipients."""
    words = ACTIONS.get(call.action) or _ROLES.get(call.role)
    folder = next((quoted(path) for _, path in call.folders), "")
    names = [quoted(r.receiver) if r.receiver else _noun(r) for r in call.receivers[:_NAMED]]
    names = list(dict.fromkeys(names))
    more = len(call.receivers) + call.more - min(_NAMED, len(call.receivers))
    reach = ", ".join([*names, *([f"{more} more"] if more else [])])
    if words is None:
        tool = f"use the tool {quoted(words_of(call.tool))}"
        tool += f" on a file in {folder}" if folder else ""
        return f"{tool} and reach {reach}" if reach else tool
    verb, unnamed, to = words
    named = call.object
    if call.role == "retrieve" and not call.action and reach:
        return f"open {reach}"
    unnamed = f"a file in {folder}" if folder else unnamed
    done = verb.format(object=quoted(named) if named else unnamed)
    return done + (to.format(reach=reach) if reach else "")


def reasons_of(call: AskedCall) -> list[str]:
    """Return why a person is asked about a call, one sentence per reason, the first decides."""
    codes = call.reasons or ("",)
    return list(dict.fromkeys(_sentence(call, code) for code in codes))


def _sentence(call: AskedCall, code: str) -> str:
    if code.startswith("action_"):
        return CAUSES.get(call.change.get("why", ""), OTHER)
    if code.startswith(_ABOUT_RECIPIENTS) and call.receivers:
        said = receiver_reason(call.receivers[0])
        return f"{said[:1].upper()}{said[1:]}."
    return _OF_FOLDER if code == "argument" and call.folders else REASONS.get(code, OTHER)


def receiver_reason(one: AskedReceiver) -> str:
    """Return where the value of a recipient comes from, without a final period."""
    it = f"this {_noun(one).split(' ', 1)[1]}"
    said = RUNGS.get(one.rung, _UNTRACED)
    if one.rung == "tainted" and one.channel in _MEMORIES:
        said = "{it} appears only in a stored note that no trusted source confirms"
    elif one.rung == "tainted" and one.source:
        said = "{it} appears only in what {source} returned, and anybody can write such text"
    return said.format(it=it, source=quoted(words_of(one.source)))


def user_question(action: str, kinds: Sequence[str], *, role: str = "") -> str:
    """Return the question that an agent puts to its user; it has no value of the call.

    Args:
        action: of the call; empty where its mapping declares none.
        kinds: of the recipients that nobody has named; empty where only the action is open.
        role: of the tool.
    """
    words = ACTIONS.get(action) or _ROLES.get(role)
    does = "do this" if words is None else words[0].format(object=words[1])
    if not kinds:
        return f"Do you want me to {does}? Please write what exactly I should do."
    names = " or ".join(KINDS.get(kind, _KIND).split(" ", 1)[1] for kind in kinds)
    return f"You want me to {does}: which {names} should I use? Please write it in full."


def quoted(text: str) -> str:
    """Return text of a call in quotation marks, on one line and shortened."""
    line = _line(text).replace("“", "'").replace("”", "'")
    return f"“{line if len(line) <= _NAME else f'{line[:_NAME]}…'}”"


def words_of(name: str) -> str:
    """Return the name of a tool as words."""
    spaced = _CAMEL.sub(" ", name)
    return " ".join("".join(c if c.isalnum() else " " for c in spaced).lower().split()) or "a tool"


def _line(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())


def _noun(one: AskedReceiver) -> str:
    return KINDS.get(one.kind, _KIND)


def _receivers(calls: Sequence[AskedCall]) -> list[AskedReceiver]:
    return [one for call in calls for one in call.receivers]


def _item(one: AskedReceiver) -> Item:
    text = _line(one.text)[:_EXCERPT]
    return Item(_noun(one), one.receiver, receiver_reason(one), text, one.rung == "tainted")


def _gravity(call: AskedCall) -> tuple[bool, bool]:
    tainted = any(one.rung == "tainted" for one in call.receivers)
    return tainted, bool(call.change)


# --- answers -------------------------------------------------------------------------------------


def _once(requests: Sequence[ApprovalRequest]) -> Choice:
    count = sum(len(one.calls) for one in requests)
    calls = "This call goes out" if count == 1 else f"These {count} calls go out"
    return Choice(Answer.ONCE, "Once", f"{calls} once.")


def _for_errand(requests: Sequence[ApprovalRequest]) -> Choice | None:
    if not all(one.coverable and one.errand for one in requests):
        return None
    covered = (name for one in requests for call in one.calls for _, name in call.covered)
    names = [quoted(name) for name in dict.fromkeys(covered) if name]
    more = len(names) - _NAMED
    shown = ", ".join([*names[:_NAMED], *([f"{more} more"] if more > 0 else [])])
    return Choice(
        Answer.ERRAND,
        "For this errand",
        f"It may reach {shown or 'the same recipients'} in the same way until the next prompt of "
        "the user, with every tool of the same service. New private text asks again.",
    )


def _remember(requests: Sequence[ApprovalRequest]) -> Choice | None:
    calls = [call for one in requests for call in one.calls]
    if any(call.more or _UNMAPPED in call.reasons for call in calls):
        return None
    if not all(call.receivers or call.change for call in calls):
        return None
    return Choice(
        Answer.REMEMBER, "Remember", "It may do this again with the same tool and recipients."
    )


def _tool(requests: Sequence[ApprovalRequest]) -> Choice | None:
    calls = [call for one in requests for call in one.calls]
    if not all(call.outline for call in calls):
        return None
    outlines = " and ".join(sorted({call.outline for call in calls}))
    return Choice(
        Answer.TOOL,
        "This tool, with these kinds of arguments",
        f"It may use this tool again with {quoted(outlines)}. A text may differ, a switch may not; "
        "any other value must be one that the user named or a person approved.",
    )


def _read_only(requests: Sequence[ApprovalRequest]) -> Choice | None:
    if not all(call.outline and not call.receivers for one in requests for call in one.calls):
        return None
    return Choice(
        Answer.READ_ONLY,
        "This tool only reads",
        "It may use this tool again with these arguments and any values in them.",
    )


def _directory(requests: Sequence[ApprovalRequest]) -> Choice | None:
    calls = [call for one in requests for call in one.calls]
    if not all(call.folders for call in calls) or any(one.people > 1 for one in requests):
        return None
    paths = dict.fromkeys(quoted(path) for call in calls for _, path in call.folders)
    covers = f"It may use this tool again on files below {' and '.join(paths)}."
    return Choice(Answer.DIRECTORY, "Remember the directory", covers)


def _deny(requests: Sequence[ApprovalRequest]) -> Choice:
    del requests
    return Choice(Answer.DENY, "No", "Nothing goes out.")


def _quarantine(requests: Sequence[ApprovalRequest]) -> Choice | None:
    found = _receivers([call for one in requests for call in one.calls])
    if not any(one.rung in {"tainted", "unknown", "remembered"} for one in found):
        return None
    covers = "Nothing goes out, and the text that named the recipient is contained."
    return Choice(Answer.QUARANTINE, "No, and quarantine the source", covers)


OFFERS: Final[tuple[Callable[[Sequence[ApprovalRequest]], Choice | None], ...]] = (
    _once,
    _for_errand,
    _remember,
    _tool,
    _read_only,
    _directory,
    _deny,
    _quarantine,
)
"""Answers in the order in which they are shown.  A further answer is one more function here, a
member of :class:`Answer`, and its effect in ``guard.operations.approvals``."""
