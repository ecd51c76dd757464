"""From a tool call to what the policy says about it: role, destinations, body.  Pure: no I/O."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import re2

from guard.core.calls import LOADED, OUTSIDE, SAVING, Claim, ClassifiedCall, Target, write_of
from guard.core.json_values import parts_of
from guard.core.jsonpath import member_path
from guard.core.model import Destination, DestinationStatus, Json, Role, ToolCall
from guard.core.work import TARGET, spend
from guard.values.canonical import MISSING, malformed, read_destinations, read_receivers
from guard.values.channels import (
    EVERYBODY,
    channels_in,
    climbing,
    hands_over,
    is_address,
    linked_in,
    loaded_in,
    named_in,
    opened_to_everybody,
    opens,
    opens_to_all,
    orders,
    receivers_in,
    sends,
    tells,
)
from guard.values.decoder import Budget, destination_readings
from guard.values.finding import (
    find_destinations,
    find_values,
    leaf_value,
    names_no_host,
    number_value,
    suspected_destinations,
)
from guard.values.statements import statements_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from guard.core.mappings import PathQuery, ToolMapping, WriteMapping
    from guard.core.policy import Policy

SCAN_LIMIT: Final = 1024 * 1024
"""Characters of undeclared arguments looked through per call.  What is beyond makes the call
malformed: the limit must free nobody, and a policy can declare large payloads as body."""

SUSPECT_LIMIT: Final = 256 * 1024
"""Characters of a call that are decoded to look for suspects; beyond it the call is not searched
to its end."""

WORD_LIMIT: Final = 4096
"""Characters of the longest string that may be a receiver as a whole: if one is not decoded, its
call names somebody unknown.  So does a longer one with something in it that looks encoded."""

STRING_COST: Final = 64
"""Characters that a string of any length counts for, as each costs time by itself."""

GUARDED_LIMIT: Final = 50
"""Values outside taken from one string of a guarded argument; one more stands for all others."""
_MORE_LINKS: Final = Destination("url", "https://unread.invalid/", "unread.invalid")
"""Stands for the links of a text that are not looked up: they may be tainted."""
_RECEIVER_HEADER: Final = re2.compile(
    r"(?im)^[ \t]{0,8}(?:resent-)?(?:bcc|cc|to)[ \t]{0,4}:[ \t]{0,8}([^\r\n]{3,998})"
)
"""A header of a mail that says who receives it."""
_HEADER_MEMBERS: Final = re.compile(
    r"(?i)(?:mail_?)?(?:subject|title|summary|topic|location|references|in_?reply_?to|reply_?to"
    r"|(?:from|sender|display)(?:_?name)?)"
)
"""Names of members whose text a program writes into one header, of a mail or of an event."""
_MESSAGE_START: Final = re2.compile(
    r"(?i)\A\s{0,4}(?:received|return-path|date|from|sender|to|cc|bcc|subject|message-id|reply-to"
    r"|mime-version|content-[a-z-]{2,20}|x-[a-z-]{2,40}|begin)[ \t]{0,4}:"
)
"""Beginning of a raw message (RFC 5322; an event, RFC 5545): one of its headers."""
_INJECTED_RECEIVER: Final = re2.compile(
    r"(?im)^[ \t]{0,8}(?:(?:resent-)?(?:bcc|cc|to)|attendee[^:\r\n]{0,200})[ \t]{0,4}:"
    r"([^\r\n]{1,998})"
)
"""Likewise, whatever it holds, and who is invited to an event."""
_CODED_MESSAGE: Final = re2.compile(r"\s*[A-Za-z0-9+/_-]{16}")
_MAILTO: Final = re.compile(r"(?i)\A\s*mailto:")
_FOLDED: Final = re.compile(r"\n[ \t]+(?=\S)")
"""Point at which a header continues in the next line."""
_BLANK_LINE: Final = re.compile(r"\n[ \t]*\n")
"""End of the headers of a message."""
_OTHER_LINE_ENDS: Final = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Characters that some programs read as the end of a line."""
_MAYBE_HEADERS: Final = re2.compile(
    r"(?i)(?:[bc]c|to)(?:[ \t]{0,4}:|[%=&\\+])|[A-Za-z0-9+/_-]{40}"
    r"|(?:\\+u[0-9a-f]{4}|\\+x[0-9a-f]{2}|&#x?[0-9a-f]{2,4};|%[0-9a-f]{2}|=[0-9a-f]{2}){4}"
)
"""Pattern in each text that has such a header, in clear or encoded."""
OBJECT_LIMIT: Final = 64
"""Maximum number of objects of one call whose origin is looked up."""
ANY_OBJECT: Final = "*"
"""Object that stands for those beyond: a pattern, which may be any."""
OBJECT_LENGTH: Final = 1024
"""Maximum number of characters of an object; a longer one is cut."""
GUARDED_COST: Final = 1024
"""Characters that a string of a guarded argument counts for."""
_HEADER_SIGN: Final = re.compile(r"[:%=&\\+]")
_SHORTEST_CODED: Final = 40
"""Length below which each text that has such a header contains ``_HEADER_SIGN``."""
_MAYBE_DISGUISED: Final = re2.compile(r"[%\\&=+<]|[^\x00-\x7f]|\S{10}|://|//:")
"""Pattern in each text in which decoding may show an address."""
_UNCLEAR: Final = frozenset({"handle", "malformed"})
_UNREAD: Final = Destination("handle", "not decoded: more than is read of one call")
"""Substitute for the receivers in a string that is short enough to be one and was not decoded."""
_CODED: Final = re2.compile(
    r"[A-Za-z0-9+/=_-]{16,}|(?:\\+u[0-9a-fA-F]{4}|\\+x[0-9a-fA-F]{2}|&#x?[0-9a-fA-F]{2,4};"
    r"|%[0-9a-fA-F]{2}|=[0-9A-F]{2}){3}|[^\x00-\x7f]@|@[^\x00-\x7f]"
)
"""Text that may hide an address: a run of letters and digits, or of escapes."""
_WORDS: Final = re2.compile(r"[a-z_-]+")
_MEMBER: Final = re.compile(r"[a-z_]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")
"""Usual form of the names of argument members, in almost every tool."""
_HTTP_HOST: Final = (member_path("$", "host"),)
_TEXTS: Final = frozenset({str, int, float})
_LAST_MEMBER: Final = re.compile(r"(?:\.|\[')([\w-]{1,64})(?:'\])?(?:\[\d+\])*\Z")
_PATH: Final = itemgetter(0)
_WHOLE: Final = frozenset({"text", "number"})
"""Kinds that a whole argument can be, whatever is in it."""
MESSAGE_ID_LIMIT: Final = 256


def classify(
    policy: Policy, call: ToolCall, claim: Claim = Claim.LISTED, place: str = ""
) -> ClassifiedCall:
    """Return the call with its role, the destinations in it and their status.

    A tool that no mapping claims gets role ``other`` and is marked unmapped, and whatever in its
    arguments can be a destination counts as one.  So does every value of a mapped send that sits
    in an argument the mapping does not declare: an attacker does not have to use the field that
    the policy's author thought of.  In a call of another role counts what carries data out (a URL
    that is read, a share, SQL that runs a program), in every argument that is not declared inert;
    what is saved or drafted stays inside.

    Args:
        policy: in force.
        call: as it was read.
        claim: of its server to the tool's name.  Without a mapping of the server's own, results
            vouch for nothing unless it alone has listed the tool; where another server has, the
            mapping holds as far as it restricts, and everything is looked through besides.
        place: server that it is called at, empty where it is unknown.

    Raises:
        ValueError: names of two members differ in lone surrogates only.
    """
    mapping = claimed_mapping(policy, call, claim)
    contested = (
        mapping is not None and claim is Claim.CONTESTED and not policy.names_server(mapping)
    )
    if mapping is not None and mapping.role is Role.DRAFT:
        # A member of its arguments may say that it is sent.
        is_sent = any(sends(name, value) for name, value in _members(dict(call.arguments)))
        mapping = replace(mapping, role=Role.SEND) if is_sent else mapping
    role = Role.OTHER if mapping is None else mapping.role
    write = None if policy.memory is None else write_of(policy.memory, call, role, mapping)
    try:
        if mapping is None:
            return _classify_unmapped(policy, call, write, place)
        found = _classify_mapped(policy, call, mapping, write, place)
        if not contested:
            return found
        return _contested(found, _classify_unmapped(policy, call, write, place))
    except UnicodeEncodeError:
        whole = replace(call, arguments=_without_surrogates(call.arguments))
        return replace(classify(policy, whole, claim, place), call=call, memory_write=write)


def claimed_mapping(policy: Policy, call: ToolCall, claim: Claim) -> ToolMapping | None:
    """Return the mapping of a call as far as its server's claim to the tool's name reaches."""
    mapping = policy.mapping(call.tool, call.server, call.upstream)
    if mapping is None or claim is Claim.LISTED or policy.names_server(mapping):
        return mapping
    return mapping.restricting if claim is Claim.CONTESTED else mapping.unattested


def _contested(mapped: ClassifiedCall, unmapped: ClassifiedCall) -> ClassifiedCall:
    """Return a call of a tool that may be another one than its mapping is about: both readings."""
    return replace(
        mapped,
        targets=tuple(dict.fromkeys((*mapped.targets, *unmapped.targets))),
        suspects=tuple(dict.fromkeys((*mapped.suspects, *unmapped.suspects))),
        searched=mapped.searched and unmapped.searched,
        body=unmapped.body,
        contested=True,
    )


def _without_surrogates(arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return arguments with ``?`` for each lone surrogate of UTF-16, which RE2 does not take.

    Raises:
        ValueError: two members would have one name, so that one of them would not be read.
    """
    data = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
    whole: dict[str, Json] = json.loads(data, object_pairs_hook=_distinct)
    return whole


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("names of members differ in lone surrogates only")
    return members


def _classify_unmapped(
    policy: Policy, call: ToolCall, write: WriteMapping | None, place: str
) -> ClassifiedCall:
    search = _Search(policy)
    search.undeclared(call.arguments)
    return ClassifiedCall(
        call=call,
        role=Role.OTHER,
        memory_write=write,
        targets=tuple(search.targets),
        suspects=tuple(search.suspects),
        searched=search.complete,
        body=tuple(text for _, text in _strings(call.arguments, "$")),
        place=place,
    )


def _classify_mapped(
    policy: Policy, call: ToolCall, mapping: ToolMapping, write: WriteMapping | None, place: str
) -> ClassifiedCall:
    arguments, declares = call.arguments, mapping.arguments
    search = _Search(policy)
    objects = search.objects(mapping, arguments)
    told = search.told(arguments, mapping, write) if mapping.role in SAVING else ()
    statements = search.statements(arguments, declares.sql) if declares.sql else ()
    if mapping.role in SAVING and not (mapping.destinations or mapping.body or declares.guarded):
        return ClassifiedCall(
            call=call,
            role=mapping.role,
            mapping=mapping,
            memory_write=write,
            targets=(*told, *statements),
            body=tuple(text for _, text in _strings(arguments, "$")) if told else (),
            objects=objects,
            tells=bool(told),
            place=place,
        )
    # The host of a plain request is the one in its URL.
    declared: set[str] = set(_HTTP_HOST) if call.protocol == "http" else set()
    receivers = _selected(mapping.destinations, arguments)
    targets = search.receivers(receivers, declared)
    members = declares.whole if declared.issuperset(map(_PATH, receivers)) else frozenset()
    named = frozenset(declared)
    body: list[str] = []
    for path, value in _selected(mapping.body, arguments):
        declared.add(path)
        body += (text for _, text in _strings(value, path))
    inert = set(map(_PATH, _selected(declares.inert, arguments))) if declares.inert else set()
    looked_at = _selected(declares.guarded, arguments) if declares.guarded else []
    guarded = search.guarded(looked_at) if looked_at else []
    loaded, search.targets = search.targets, []
    if mapping.role is Role.SEND:
        search.disguised(arguments)
        if mapping.reading.reply is not None:
            targets += _answered(
                policy, call, mapping.reading.reply, declared, none_yet=not targets
            )
        ignored: AbstractSet[str] = frozenset()
        traced = set(map(_PATH, looked_at)) - declared
        declared |= traced | inert
        if declares.ignore:
            ignored = set(map(_PATH, _selected(declares.ignore, arguments))) - declared
        known = declared | ignored
        undeclared = search.undeclared(arguments, known, members)
        search.payload_headers(body, undeclared, arguments, known)
        body += undeclared
        body += (text for _, text in _at(arguments, traced))
        if not targets and not search.targets and not mapping.may_lack_receivers:
            targets.append(Target(MISSING, DestinationStatus.MISSING))
        search.ignored(arguments, ignored, inert)
        search.unfurled(_selected(declares.unfurls, arguments))
        search.targets += loaded
    elif mapping.role not in SAVING:
        looked_up = _declared(arguments, mapping, write)
        body += search.channels(arguments, named | inert, looked_up, mapping.role)
        search.pages(_selected(filter(None, [mapping.reading.named_by]), arguments))
    return ClassifiedCall(
        call,
        mapping.role,
        mapping,
        write,
        (*targets, *search.targets, *told, *statements),
        tuple(search.suspects),
        search.complete,
        tuple(body),
        tuple(guarded),
        objects,
        bool(told),
        place,
    )


def _members(arguments: Json) -> Iterator[tuple[str, Json]]:
    """Yield name and value of every member, those of members included; of a list, every item."""
    stack: list[tuple[str, Json]] = [("", arguments)]
    while stack:
        name, item = stack.pop()
        if name and not isinstance(item, list):
            yield name, item
        if isinstance(item, dict):
            stack += item.items()
        elif isinstance(item, list):
            stack += ((name, inner) for inner in item)


def _declared(
    arguments: Mapping[str, Json], mapping: ToolMapping, write: WriteMapping | None
) -> set[str]:
    """Return the paths of what the mappings of a call declare."""
    return set(map(_PATH, _selected(mapping.paths(write), arguments)))


def _addressed_in(path: str, value: Json) -> set[str]:
    """Return the paths at and below a declared one of which the value is read as recipients.

    Of an object only addresses are: beside one, another member may choose the receiver.
    """
    texts = value if isinstance(value, list) else [value]
    if _TEXTS.issuperset(map(type, texts)):
        return {path}
    if not any(isinstance(part, dict) for part in parts_of(value)):
        return {path}
    found = _strings(value, path)
    return {at for at, text in found if any(one.host for one in read_destinations(text))}


def _content(mapping: ToolMapping, write: WriteMapping | None) -> tuple[PathQuery, ...]:
    """Return the paths of what a save keeps, as far as its mappings declare them."""
    kept = (
        *mapping.destinations,
        *mapping.body,
        *mapping.arguments.ignore,
        *mapping.arguments.inert,
    )
    return kept if write is None else (*kept, *write.content)


def _at(arguments: Json, paths: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yield every string at or below some paths."""
    for path, text in _strings(arguments, "$") if paths else ():
        if _is_below(path, paths):
            yield path, text


def _is_below(path: str, paths: AbstractSet[str]) -> bool:
    """Return whether a path is one of some, or of a member or an item below one."""
    return path in paths or any(path.startswith((f"{p}[", f"{p}.")) for p in paths)


def _selected(
    queries: Iterable[PathQuery], arguments: Mapping[str, Json]
) -> list[tuple[str, Json]]:
    """Return what some queries select, with their paths."""
    found: list[tuple[str, Json]] = []
    for query in queries:
        member = query.member
        if member is None:
            if query.name is None or query.name in arguments:
                found += query.find(arguments)
        elif member in arguments:
            found.append((query.path, arguments[member]))
    return found


def _answered(
    policy: Policy, call: ToolCall, reply: PathQuery, declared: set[str], *, none_yet: bool
) -> Iterator[Target]:
    """Yield the message that a call answers, where that says who receives it."""
    for path, value in reply.find(call.arguments):
        declared.add(path)
        if none_yet and isinstance(value, str | int) and not isinstance(value, bool):
            destination = Destination("reply", str(value)[:MESSAGE_ID_LIMIT])
            yield Target(destination, policy.status_of(destination), path)


def _guarded_values(policy: Policy, path: str, text: str) -> Iterator[Target]:
    whole = leaf_value(text)
    number = number_value(text) if whole is not None else None
    if whole is not None:
        # A number is compared as one: `10` and `10.00` are the same amount.
        kind = "text" if number is None else "number"
        yield Target(Destination(kind, number or whole), DestinationStatus.EXTERNAL, path)
    found = [*find_destinations(text[:SCAN_LIMIT])]
    for value in find_values(text, disguised=False).plain:
        kind, _, canonical = value.partition(":")
        if kind == "host":
            found.append(Destination("host", canonical, canonical.partition("/")[0]))
        elif kind == "handle" and value != whole and number is None:
            found.append(Destination("text", value))
    outside: Counter[str] = Counter()
    for destination in found:
        text_kind = destination.kind == "text"
        status = DestinationStatus.EXTERNAL if text_kind else policy.status_of(destination)
        outside[destination.kind] += status is DestinationStatus.EXTERNAL
        if outside[destination.kind] <= GUARDED_LIMIT:
            yield Target(destination, status, path)
    if outside["url"] > GUARDED_LIMIT or outside["host"] > GUARDED_LIMIT:
        yield Target(_MORE_LINKS, DestinationStatus.EXTERNAL, path)


def _is_coded(text: str) -> bool:
    """Return whether something in a text looks encoded, other than long words in small letters."""
    return any(_WORDS.fullmatch(run[0]) is None for run in _CODED.finditer(text))


def _scalars(value: Json, path: str) -> Iterable[tuple[str, str]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ((path, str(value)),)
    return _strings(value, path)


class _Search:
    """Looks through the arguments of one call for destinations, with one budget for all of them.

    Args:
        policy: says where a destination stands.
    """

    def __init__(self, policy: Policy) -> None:
        self.targets: list[Target] = []
        self.suspects: list[Target] = []
        self.complete = True
        self._policy = policy
        self._unclear: set[str] = set()
        """Paths of declared destinations that are not plain."""
        self._room = SCAN_LIMIT
        self._suspect_room = SUSPECT_LIMIT

    def receivers(self, selected: Iterable[tuple[str, Json]], declared: set[str]) -> list[Target]:
        """Return the declared destinations, and note the paths that are read as such."""
        targets: list[Target] = []
        status_of = self._policy.status_of
        for path, value in selected:
            for destination in read_receivers(value):
                spend(TARGET)
                targets.append(Target(destination, status_of(destination), path))
                if destination.kind in _UNCLEAR:
                    self._unclear.add(path)
            declared |= _addressed_in(path, value)
        return targets

    def undeclared(
        self,
        arguments: Mapping[str, Json],
        declared: AbstractSet[str] = frozenset(),
        members: frozenset[str] = frozenset(),
    ) -> list[str]:
        """Take the destinations of every string that is at no declared path; return the strings.

        Args:
            arguments: of the call.
            declared: paths.
            members: names of arguments that are declared as a whole.
        """
        if not _TEXTS.issuperset(map(type, arguments.values())):
            self._opened(arguments, declared)
        if members.issuperset(arguments):
            return []
        texts: list[str] = []
        for path, text in _strings(arguments, "$", declared):
            if not self._has_room(path, len(text)):
                break
            texts.append(text)
            name = _name_of(path)
            plain = find_destinations(text) or named_in(name, text, receivers=True)
            self._add(path, (*plain, *statements_in(text, name)))
            if opened_to_everybody(text, whole=True) or opens(name, value=text):
                self._add(path, (EVERYBODY,))
            if self._may_decode(text):
                found = find_values(text)
                self.complete = self.complete and not found.overflow
                hosts = {destination.host for destination in plain}
                others = (d for d in suspected_destinations(found) if d.canonical not in hosts)
                self._suspect(path, others)
            elif len(text) <= WORD_LIMIT or _is_coded(text):
                self._add(path, (_UNREAD,))
        return texts

    def channels(
        self,
        arguments: Json,
        declared: AbstractSet[str],
        looked_up: AbstractSet[str],
        role: Role,
    ) -> tuple[str, ...]:
        """Take what carries data out of a call that is not a send; return its texts if any does.

        Args:
            arguments: of the call.
            declared: paths at which nothing carries data.
            looked_up: paths that the mapping declares: a read looks up a mailbox there.
            role: of its tool.
        """
        texts: list[str] = []
        self._opened(arguments, declared, ordered=role is not Role.OTHER)
        for path, text in _strings(arguments, "$", declared):
            if not self._has_room(path, len(text)):
                break
            texts.append(text)
            name = _name_of(path)
            mailboxes = role is Role.OTHER or (
                "@" in text and is_address(text) and not _is_below(path, looked_up)
            )
            self._add(path, channels_in(text, mailboxes=mailboxes, name=name))
            self._add(path, named_in(name, text, receivers=False))
            if role is Role.OTHER and tells(name) and opens_to_all(name, text):
                self._add(path, (EVERYBODY,))
            if _MAYBE_DISGUISED.search(text) is not None and self._may_decode(text):
                found = suspected_destinations(find_values(text))
                mailboxes = mailboxes or hands_over(name)
                kinds = {"url", "mail"} if mailboxes else {"url"}
                self._suspect(path, (d for d in found if d.kind in kinds))
        return tuple(texts) if self.targets else ()

    def pages(self, named: Iterable[tuple[str, Json]]) -> None:
        """Take what names a page whole, where it names a URL: its host is told all of it."""
        urls = {target.path for target in self.targets if target.destination.kind == "url"}
        for path, value in named:
            if urls and any(_is_below(one, {path}) for one in urls):
                self._add(path, read_receivers(value))

    def statements(
        self, arguments: Mapping[str, Json], queries: Iterable[PathQuery]
    ) -> tuple[Target, ...]:
        """Return what statements of SQL at declared paths may reach."""
        for path, value in _selected(queries, arguments):
            for at, text in _strings(value, path):
                self._add(at, statements_in(text, is_sql=True))
        found, self.targets = tuple(self.targets), []
        return found

    def told(
        self, arguments: Mapping[str, Json], mapping: ToolMapping, write: WriteMapping | None
    ) -> tuple[Target, ...]:
        """Return who is told of what a call saves or drafts."""
        return (*self._named(arguments), *self._addressed(arguments, mapping, write))

    def _named(self, arguments: Json) -> tuple[Target, ...]:
        """Return who is told by members whose names say so."""
        stack: list[tuple[str, str, Json]] = [("$", "", arguments)]
        while stack:
            path, name, item = stack.pop()
            if isinstance(item, dict):
                for member, inner in item.items():
                    told = member if tells(member) else name
                    if told or isinstance(inner, dict | list):
                        stack.append((member_path(path, member), told, inner))
            elif isinstance(item, list):
                stack += ((f"{path}[{index}]", name, inner) for index, inner in enumerate(item))
            elif isinstance(item, bool) and opens(name, value=item):
                self._add(path, (EVERYBODY,))
            elif isinstance(item, str) and name:
                self._room -= len(item)
                if self._room < 0:
                    self._add(path, (_UNREAD,))
                    break
                places = channels_in(item, mailboxes=True, name=name)
                self._add(path, (_UNREAD if d.kind == "malformed" else d for d in places))
                self._add(path, named_in(name, item, receivers=False))
                if opens_to_all(name, item) or opened_to_everybody(item, whole=False):
                    self._add(path, (EVERYBODY,))
        found, self.targets = tuple(self.targets), []
        return found

    def _addressed(
        self, arguments: Mapping[str, Json], mapping: ToolMapping, write: WriteMapping | None
    ) -> tuple[Target, ...]:
        """Return the addresses outside that are whole values and that no mapping declares.

        A tool may fetch one, or notify it, of what a call saves or drafts.
        """
        addresses = [(p, text) for p, text in _strings(arguments, "$") if is_address(text)]
        if not addresses:
            return ()
        # A draft is addressed to somebody, whether its mapping says where or not.  A mailbox in a
        # store is content where the mapping declares no content: its label follows it.
        addressed = mapping.destinations if mapping.role is Role.DRAFT else _content(mapping, write)
        may_be_mail = bool(addressed) or (mapping.role is not Role.DRAFT and not mapping.store)
        declared = _declared(arguments, mapping, write)
        for path, text in addresses:
            if _is_below(path, declared):
                continue
            self._room -= len(text)
            if self._room < 0:
                self._add(path, (_UNREAD,))
                break
            found = [
                d for d in channels_in(text, mailboxes=True) if may_be_mail or d.kind != "mail"
            ]
            self._add(path, (_UNREAD if d.kind == "malformed" else d for d in found))
        targets, self.targets = self.targets, []
        return tuple(target for target in targets if target.status in OUTSIDE)

    def ignored(self, arguments: Json, ignored: AbstractSet[str], inert: AbstractSet[str]) -> None:
        """Take what is a receiver in arguments of a send that are said to name none."""
        for path, text in _at(arguments, ignored):
            if not self._has_room(path, len(text)):
                return
            self._add(path, (d for d in receivers_in(text) if d.kind != "malformed"))
            if opened_to_everybody(text, whole=False) or opens(_name_of(path), value=text):
                self._add(path, (EVERYBODY,))
        for path, text in _at(arguments, inert):
            if (climbed := climbing(text)) is not None:
                self._add(path, (climbed,))

    def _opened(
        self, arguments: Json, declared: AbstractSet[str], *, ordered: bool = False
    ) -> None:
        """Take switches that make what a call is about public.

        Args:
            arguments: of the call.
            declared: paths of which it is known what they say.
            ordered: whether the name has to say that it does so: to read, `public` is a filter.
        """
        for path, name, value in _switches(arguments):
            if path in declared or (ordered and not orders(name)):
                continue
            if opens(name, value=value):
                self._add(path, (EVERYBODY,))

    def disguised(self, arguments: Json) -> None:
        """Suspect values that decoding shows in declared destinations that are not plain."""
        for path, text in _at(arguments, self._unclear):
            if _MAYBE_DISGUISED.search(text) is not None and self._may_decode(text):
                self._suspect(path, suspected_destinations(find_values(text)))

    def _add(self, path: str, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            spend(TARGET)
            self.targets.append(Target(destination, self._policy.status_of(destination), path))

    def injected_headers(self, arguments: Mapping[str, Json], declared: AbstractSet[str]) -> None:
        """Take the receivers in what a program reads as headers of a message.

        Behind a line end in a subject another header begins (header injection), and a raw message
        begins with its headers.  Whoever is named there receives it, also where nobody can read who
        that is.

        Args:
            arguments: of the call.
            declared: paths at which no raw message stands.
        """
        for path, text in _strings(arguments, "$"):
            if not text.isprintable() and _HEADER_MEMBERS.fullmatch(_name_of(path)):
                self._receivers_in(path, _normal_line_ends(text.strip()).partition("\n")[2])
            elif path not in declared:
                readings: Iterable[str] = (text,)
                if _CODED_MESSAGE.match(text) and self._may_decode(text):
                    budget = Budget(SUSPECT_LIMIT)
                    readings = (text, *destination_readings(text, budget))
                    self.complete = self.complete and not budget.exceeded
                for reading in readings:
                    if _MESSAGE_START.search(reading) is not None:
                        self._receivers_in(
                            path, _BLANK_LINE.split(_normal_line_ends(reading), maxsplit=1)[0]
                        )

    def _receivers_in(self, path: str, headers: str) -> None:
        for header in _INJECTED_RECEIVER.finditer(_FOLDED.sub("", headers)):
            self._add(path, read_destinations(_MAILTO.sub("", header.group(1))))

    def payload_headers(
        self,
        body: Iterable[str],
        undeclared: Iterable[str],
        arguments: Mapping[str, Json],
        declared: AbstractSet[str],
    ) -> None:
        """Take the receivers in mail headers of a payload, in clear or encoded.

        Args:
            body: texts of the payload.
            undeclared: texts that nothing is declared of.
            arguments: of the call, which have them.
            declared: paths of all others.
        """
        if undeclared or not "".join(body).isprintable():
            self.injected_headers(arguments, declared)
        for text in body:
            short = len(text) < _SHORTEST_CODED and _HEADER_SIGN.search(text) is None
            if short or _MAYBE_HEADERS.search(text) is None:
                continue
            budget = Budget(SUSPECT_LIMIT)
            decoded = destination_readings(text, budget) if self._may_decode(text) else ()
            for reading in (text, *decoded):
                for header in _RECEIVER_HEADER.finditer(_OTHER_LINE_ENDS.sub("\n", reading)):
                    named = header.group(1)
                    self._suspect("", (*read_destinations(named), *find_destinations(named)))
                    self._suspect("", suspected_destinations(find_values(named)))
            self.complete = self.complete and not budget.exceeded

    def guarded(self, looked_at: Iterable[tuple[str, Json]]) -> list[Target]:
        """Return the values of guarded arguments: a short one whole, and what is in a long one.

        Values of kinds that no rule looks at are left out.
        """
        found: list[Target] = []
        kinds = self._policy.needs.guarded_kinds
        wants_text = kinds is None or not kinds.isdisjoint(_WHOLE)
        for path, value in looked_at:
            for where, text in _scalars(value, path):
                if not wants_text and names_no_host(text):
                    continue
                if not self._has_room(where, len(text) + GUARDED_COST):
                    return found
                if "//" in text or "&#" in text:
                    self._add(LOADED, loaded_in(text))
                for target in _guarded_values(self._policy, where, text):
                    if target.destination is _MORE_LINKS:
                        self.complete = False
                    if kinds is None or target.destination.kind in kinds:
                        found.append(target)
        return found

    def objects(self, mapping: ToolMapping, arguments: Mapping[str, Json]) -> tuple[Target, ...]:
        """Return the values that name the object of a mapped action."""
        action = mapping.action
        if action is None or not action.objects or self._policy.needs.actions.words is None:
            return ()
        found: list[Target] = []
        for path, value in _selected(action.objects, arguments):
            for where, text in _scalars(value, path):
                if not self._has_room(where, len(text) + GUARDED_COST):
                    return tuple(found)
                short = text.strip()[:OBJECT_LENGTH]
                many = len(found) == OBJECT_LIMIT
                destination = Destination("object", ANY_OBJECT if many else short)
                found.append(Target(destination, DestinationStatus.EXTERNAL, where))
                if many:
                    return tuple(found)
        return tuple(found)

    def unfurled(self, looked_at: Iterable[tuple[str, Json]]) -> None:
        """Take the links in texts for which a service loads previews."""
        for path, value in looked_at:
            for where, text in _strings(value, path):
                if not self._has_room(where, len(text)):
                    return
                self._add(LOADED, linked_in(text))

    def _has_room(self, path: str, length: int) -> bool:
        """Spend the characters of a string; return whether the budget had them.

        Where it had not, the call is malformed: the limit must free nobody.
        """
        self._room -= length
        spend(STRING_COST + length // 8)
        if self._room < 0:
            self.targets.append(Target(malformed(path), DestinationStatus.MALFORMED, path))
        return self._room >= 0

    def _may_decode(self, text: str) -> bool:
        self._suspect_room -= len(text) + STRING_COST
        self.complete = self.complete and self._suspect_room >= 0
        return self._suspect_room >= 0

    def _suspect(self, path: str, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            spend(TARGET)
            status = self._policy.status_of(destination)
            if status in OUTSIDE:
                self.suspects.append(Target(destination, status, path))


def _normal_line_ends(text: str) -> str:
    """Return a text whose lines all end alike."""
    return _OTHER_LINE_ENDS.sub("\n", text.replace("\r\n", "\n"))


def _name_of(path: str) -> str:
    """Return the name of the member at a path, for an item of a list that of the list."""
    found = _LAST_MEMBER.search(path)
    return found[1] if found is not None else ""


def _switches(arguments: Json) -> Iterator[tuple[str, str, bool]]:
    """Yield path, name and value of every member that is true or false."""
    stack: list[tuple[str, Json]] = [("$", arguments)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, dict):
            for name, inner in item.items():
                if isinstance(inner, bool):
                    yield member_path(where, name), name, inner
                elif isinstance(inner, dict) or (
                    isinstance(inner, list) and dict in map(type, inner)
                ):
                    stack.append((member_path(where, name), inner))
        elif isinstance(item, list):
            stack.extend((f"{where}[{n}]", i) for n, i in enumerate(item) if isinstance(i, dict))


def _strings(
    value: Json, path: str, skip: AbstractSet[str] = frozenset()
) -> Iterable[tuple[str, str]]:
    """Return every string in a JSON value with its normalised path, object keys included."""
    if isinstance(value, str):
        return () if path in skip else ((path, value),)
    return _walked(value, path, skip)


def _walked(value: Json, path: str, skip: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Json]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if where in skip:
            continue
        if isinstance(item, str):
            yield where, item
        elif isinstance(item, dict):
            for key, inner in item.items():
                inner_path = member_path(where, key)
                # A name of a member is no address, nor a coding of one.
                if _MEMBER.fullmatch(key) is None:
                    yield inner_path, key
                if inner_path not in skip:
                    stack.append((inner_path, inner))
        elif isinstance(item, list):
            stack.extend((f"{where}[{index}]", inner) for index, inner in enumerate(item))
