"""Switches that turn one rule of the trust model off each, by attack class.

A switch replaces something of the guard by its path, most often with a function that always
returns the same.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from guard.core.calls import Claim
from guard.core.labels import Attestation, Channel, LabelSet, Rung
from guard.core.model import Integrity, Role
from guard.policy import recognition
from guard.policy.recognition import Launch
from guard.policy.rules import base
from guard.provenance import label_sets, ladder, lookups, named_documents, prompts
from guard.provenance.approvals import GRANT_FIELD
from guard.provenance.prompt_reader import Reading, typed_values, values_of
from guard.provenance.seal import ANY_SERVICE
from guard.settings import BUILTIN
from guard.values import canonical, finding, sites
from guard.values.canonical import untagged
from lab.trust.attacks import Patch, Switch
from lab.trust.proposals import PROGRAM_SERVERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guard.core.model import Destination
    from guard.policy.proposal import Guess

    Off = Callable[[Patch], object]
    Before = Callable[..., Any]

READER: Final = "guard.provenance.prompt_reader:"
LADDER: Final = "guard.provenance.ladder:"
LOOKUPS: Final = "guard.provenance.lookups:"
CLASSIFICATION: Final = "guard.pipeline.classification:"
INTAKE: Final = "guard.provenance.intake:"
RULES: Final = "guard.policy.rules."
TRACING: Final = "guard.provenance.tracing:"
DOCUMENTS: Final = "guard.provenance.named_documents:"
MCP: Final = "guard.protocols.mcp.mcp:"
RESPONSE: Final = "guard.pipeline.response:"
SETS: Final = "guard.provenance.label_sets:LabelSets."
NEVER: Final = re.compile("(?!)")


def put(value: object, *targets: str) -> Off:
    """Return a switch's ``off`` that puts a value in the place of others."""

    def off(patch: Patch) -> None:
        for target in targets:
            patch.at(target, value)

    return off


def gives(value: object, *targets: str) -> Off:
    """Return a switch's ``off`` by which functions always return a value."""
    return put(lambda *_, **__: value, *targets)


def yes(*targets: str) -> Off:
    """Return a switch's ``off`` by which tests always hold."""
    return put(lambda *_, **__: True, *targets)


def no(*targets: str) -> Off:
    """Return a switch's ``off`` by which tests never hold."""
    return put(lambda *_, **__: False, *targets)


def property_of(value: Callable[[Any], object], target: str) -> Off:
    """Return a switch's ``off`` by which a property has another value."""
    return put(property(value), target)


def around(target: str, change: Callable[..., object]) -> Off:
    """Return a switch's ``off`` by which a function is called with the replaced one before all."""

    def off(patch: Patch) -> None:
        def changed(*given: Any, **named: Any) -> object:
            return change(before, *given, **named)

        before = patch.at(target, changed)

    return off


def every(*offs: Off) -> Off:
    """Return a switch's ``off`` that does several things."""

    def off(patch: Patch) -> None:
        for one in offs:
            one(patch)

    return off


# --- who is who ---


def _known_by(keys: Callable[[Callable[..., Any], Destination], Any]) -> Off:
    """Have destinations known by other values, those too that were asked about before."""
    values = put(ladder._made_values, f"{LADDER}_kept_values")  # noqa: SLF001
    questions = put(lookups._made_questions, f"{LOOKUPS}_kept_questions")  # noqa: SLF001
    return every(around(f"{LADDER}keys_of", keys), values, questions)


def _tags_folded(original: Callable[..., Any], destination: Destination) -> tuple[str, ...]:
    keys: tuple[str, ...] = original(destination)
    if destination.kind != "mail":
        return keys
    bare = untagged(destination.canonical)
    return (*keys, f"mail:{bare}", f"mail:{bare.replace('@', '+a7@')}")


def _without_fragment(original: Callable[..., Any], destination: Destination) -> Any:
    whole = destination.canonical.partition("#")[0]
    return original(replace(destination, canonical=whole))


def _host_and_path(original: Callable[..., Any], destination: Destination) -> tuple[str, ...]:
    keys: tuple[str, ...] = original(destination)
    if destination.kind != "url":
        return keys
    path = destination.canonical.partition("://")[2].partition("?")[0].rstrip("/")
    return (*keys, f"url:https://{path}", f"host:{destination.host}")


def _found_keys(keys: Iterable[str], known: Mapping[str, Any]) -> Iterator[Any]:
    return (known[key] for key in keys if key in known)


PAGES_BELOW: Final = put(_found_keys, f"{LADDER}_found")


def _listed_tags_folded(patch: Patch) -> None:
    def folding(cls: Any, texts: Any, /, **_: object) -> Any:
        return before.__func__(cls, texts, folds_tags=True)

    before = patch.at("guard.values.patterns:PatternSet.parse", classmethod(folding))


def _outer(text: str) -> tuple[Destination, ...]:
    return (canonical.read_mailbox(text),)


def _many_senders(before: Before, intake: Any, message: Any, *given: Any) -> None:
    if isinstance(message, dict):
        for sender in canonical.read_destinations(message.get("from")):
            before(intake, {**message, "from": sender.canonical}, *given)


# --- who said what ---


def _clear(reading: Reading) -> Off:
    def read(before: Before, sentence: str) -> Reading:
        found: Reading = before(sentence)
        return Reading.CLEAR if found is reading else found

    return around(f"{READER}reading_of", read)


def _any_word(before: Before, text: str) -> list[str]:
    """Take every word with a dot for a page."""
    dotted = (word.strip(".,") for word in text.split())
    return [*before(text), *(f"https://{word}" for word in dotted if "." in word)]


def _every_recipient(texts: list[str]) -> list[str]:
    return [value for text in texts for typed in typed_values(text) for value in values_of(typed)]


def _delegated(keys: Sequence[str], context: Any) -> Attestation | None:
    """Let a named document supply recipients whatever the prompt requests."""
    known = context.values.get(named_documents.delegated_value(context.delegates, keys[0]))
    record = None if known is None else known.reply
    return None if record is None else Attestation(Rung.REPLY, "named_document", record)


def _believe_results(before: Before, intake: Any, leaf: Any) -> None:
    """Let a tool of a high label vouch for all that it returns."""
    if leaf.label >= Integrity.AUTHENTICATED:
        for value in finding.whole_values(leaf.text):
            intake._held[value] = Channel.DIRECTORY, None, ()  # noqa: SLF001
    before(intake, leaf)


def _believe_senders(before: Before, declared: Any, document: Any, messages: Any) -> None:
    """Let a field promise of a sender what it likes."""
    before(declared, document, messages)
    declared.senders -= declared.fields.keys()


def _forget_saves(before: Before, classified: Any) -> Any:
    """Take a declared store's labels for enough."""
    return () if classified.saves_to else before(classified)


def _own_of_all(before: Before, sets: Any, identity: Any, fingerprint: bytes) -> Any:
    return before(sets, replace(identity, principal=""), fingerprint)


def _bucket_of_all(before: Before, sets: Any, tenant: str, principal: str, *place: int) -> Any:
    everybody = before(sets, tenant, "", *place)
    return before(sets, tenant, principal, *place)._replace(own=everybody.own)


def _forever(before: Before, record: Any, context: Any) -> Any:
    return before(record, replace(context, at=0.0))


def _of_anybody(seal: Any, _principal: Any, _tool: Any, destination: Any) -> Any:
    return label_sets.established_mark(seal, "", ("", "", ""), destination)


def _in_pieces(before: Before, words: str) -> list[str]:
    parts = prompts.SENTENCE_END.split(words)
    return [*before(words), *filter(None, map(prompts.said_value, parts))]


async def _nothing(*_: object) -> None:
    return None


# --- servers and approvals ---


def _map_all(before: Before, policy: Any, listener: str, upstream: str) -> Any:
    return before(policy, listener, upstream) or next(iter(policy.servers), None)


def _mapped(mapping: Callable[[Guess], str | None]) -> Off:
    def mappings(guesses: Sequence[Guess], _store: str) -> Iterator[str]:
        found = [line for line in map(mapping, guesses) if line is not None]
        yield from ("    tools:", *(f"      - {line}" for line in found)) if found else ()

    return put(mappings, "guard.policy.proposal:_mappings")


def _harmless(one: Guess) -> str | None:
    if one.suggested in {None, Role.SEND}:
        return None
    return f"{{match: [{one.tool}], role: {one.suggested.value}}}"


def _receiving(one: Guess) -> str | None:
    if one.suggested is not Role.SEND:
        return None
    queries = json.dumps([f"$.{name}" for name in one.destinations])
    return f"{{match: [{one.tool}], role: send, destinations: {queries}}}"


def _trust_tools(patch: Patch) -> None:
    """Recognise every server as every known one, so that its tools' names decide."""
    everything = tuple(
        f"{BUILTIN}{name}"
        for name, content in recognition.shipped_profiles().items()
        if content.recognised_by is not None
    )
    gives(everything, "guard.policy.recognition:profiles_of")(patch)


def _base_name(word: str) -> str:
    return PurePath(word.replace("\\", "/")).name


def _by_basename(command: Sequence[str], _: Mapping[str, str]) -> Launch | None:
    """Take every word of a command line that ends in a package's name for the package."""
    ends = [_base_name(word) for word in command]
    for kind, package, _tool in PROGRAM_SERVERS:
        if package.rpartition("/")[2] in ends:
            return Launch(kind, package)
    return None


def _unbind(*names: str) -> Off:
    def unbound(before: Before, value: Any, level: int) -> Any:
        if isinstance(value, dict) and value.keys() >= set(names):
            value = value | dict.fromkeys(names, "")
        return before(value, level)

    return around("guard.provenance.approvals:_CANONICAL", unbound)


def _granting(change: Callable[..., tuple[Any, ...]]) -> Off:
    """Grant for other calls and definitions than were asked about."""

    def grant(before: Before, approvals: Any, policy: Any, *given: Any) -> Any:
        return before(approvals, policy, *change(*given))

    return around("guard.provenance.approvals:Approvals.grant", grant)


def _any_definition(call: Any, raw: bytes, _: str = "") -> tuple[Any, ...]:
    return call, raw, ""


def _at_no_time(call: Any, raw: bytes, definition: str = "") -> tuple[Any, ...]:
    return replace(call, at=0.0), raw, definition


def _lasting(digest: str, _: int) -> LabelSet:
    return LabelSet(label_sets.GRANT_KIND, (digest,), "", label_sets.FOREVER, 1)


async def _put_back(before: Before, store: Any, asked: Any) -> Any:
    snapshot = await before(store, asked)
    if snapshot.grant is not None:
        key = store.key_of(asked.identity.tenant, label_sets.grant(asked.grant, 1))
        await store.client.execute("HSET", key, GRANT_FIELD, snapshot.grant)
    return snapshot


# --- what is looked at ---


def _in_both(name: str, value: object) -> Off:
    return gives(value, f"guard.values.channels:{name}", f"{CLASSIFICATION}{name}")


def _unbound(before: Before, rule: Any, targets: Any) -> list[Any]:
    """Look at the first links of a text, and forget that there were more."""
    return [one for one in before(rule, targets) if one[1].rung in rule.rungs]


def _all_asked(before: Before, protocol: Any, request: Any) -> Any:
    """Forget the answers that have no question; whoever is away from the endpoint stays so."""
    message = before(protocol, request)
    return replace(message, echoes=tuple(one for one in message.echoes if not one.answers))


# --- shipped policies ---


def _restricts_nothing(before: Before, rule: base.RuleConfig, *given: Any) -> Any:
    return before(rule, *given) if rule.effect.label == "allow" else None


def _silent(*rules: str) -> Off:
    """Let every restricting rule of some types say nothing."""
    return every(*(around(f"{RULES}{rule}.judge", _restricts_nothing) for rule in rules))


def _sessions_alone(situation: Any, scope: str) -> Any:
    own = (("session", situation.snapshot.session),)
    return own if scope == "session" else base.limit_windows(situation, "both")


def _receiving_anybody(rule: Any, targets: Any) -> list[Any]:
    if rule.effect.label != "allow":
        return []
    return [(target, ladder.attestation_of(target)) for target in targets]


SWITCHES: Final[dict[str, tuple[Switch, ...]]] = {
    "identity": (
        Switch("a tag chooses a mailbox", _known_by(_tags_folded)),
        Switch("a listed mailbox has no other tags", _listed_tags_folded),
        Switch(
            "scheme, path and query are part of a URL",
            every(_known_by(_host_and_path), PAGES_BELOW),
            "team?",
        ),
        Switch("a typed URL is one page", PAGES_BELOW, "/v1/team/drop"),
        Switch("what a canonical form leaves out counts", _known_by(_without_fragment), "@api."),
    ),
    "spellings": (
        Switch(
            "an encapsulated address is the one inside",
            every(
                put(_outer, "guard.values.canonical:read_mailboxes"),
                put(_outer, "guard.values.finding:read_mailboxes"),
                # Its cache is older than the switch.
                put(inspect.unwrap(canonical._read_text), "guard.values.canonical:_read_text"),  # noqa: SLF001
            ),
            "encapsulated",
        ),
        Switch(
            "a path is decoded to its end",
            put(lambda text: iter((text,)), "guard.values.canonical:unquoted"),
            "climbing",
        ),
        Switch(
            "a message has one sender",
            around(f"{INTAKE}ResultIntake._message", _many_senders),
            "two senders",
        ),
        Switch(
            "a sentence ends behind a name",
            put(lambda name: (name,), "guard.values.finding:_bare_names"),
            "a sentence",
        ),
    ),
    "decoding": (
        Switch(
            "what only decoding shows counts where it is tainted", no("guard.core.calls:_counts")
        ),
        Switch(
            "headers in a payload name receivers",
            gives(None, f"{CLASSIFICATION}_Search.payload_headers"),
        ),
        Switch(
            "whoever a head names receives it",
            gives(None, f"{CLASSIFICATION}_Search.injected_headers"),
            "in a head:",
        ),
    ),
    "empty_members": (
        Switch(
            "an empty member is an absent one",
            put(lambda value: value, f"{RULES}expression:without_empty"),
            "own policy:",
        ),
        Switch(
            "an empty value passes no test", no(f"{RULES}argument:is_empty"), "own allowing policy:"
        ),
    ),
    "names": (
        Switch(
            "an outsider's field vouches for nobody",
            property_of(lambda _: Channel.DIRECTORY, "guard.policy.schema:FieldEntry.declared"),
        ),
        Switch(
            "a trusted result is no directory",
            around(f"{INTAKE}ResultIntake._take", _believe_results),
        ),
        Switch("a directory vouches for its kinds", yes(f"{INTAKE}is_of_kind")),
        Switch("what an agent wrote is no evidence", gives((), f"{TRACING}written_values")),
        Switch("a name of two people names nobody", yes(f"{TRACING}Tracing._is_one_entry")),
    ),
    "entries": (
        Switch(
            "who can cause an entry decides",
            property_of(lambda _: Channel.OWN_RECORD, "guard.policy.schema:FieldEntry.declared"),
        ),
        Switch(
            "a field without a writer vouches for nobody",
            property_of(
                lambda entry: Channel(entry.who or "result"),
                "guard.policy.schema:FieldEntry.declared",
            ),
        ),
        Switch("a promise fits its writer", gives((), "guard.policy.lint:_mistaken"), "loaded"),
        Switch(
            "a sender is an outsider",
            around("guard.provenance.result_documents:_Declared._take_messages", _believe_senders),
            "sender",
        ),
    ),
    "saved_directories": (
        Switch(
            "what is saved into a store is written",
            around(f"{TRACING}written_values", _forget_saves),
        ),
        Switch(
            "a store that agents write is no directory",
            gives((), "guard.policy.lint:_written_directories"),
            "loaded",
        ),
        Switch(
            "an id that a store gave is written",
            gives((), "guard.provenance.saved_values:ids_given"),
            "an id",
        ),
    ),
    "services": (
        Switch("a handle vouches in its own service", yes(f"{LADDER}serves")),
        Switch(
            "what is saved keeps its service",
            gives((ANY_SERVICE,), "guard.provenance.saved_values:lasting_services"),
            "saved",
        ),
        Switch(
            "a name leads to an entry, and is none",
            gives(None, "guard.provenance.result_documents:_Declared._resolve_names"),
            "called like",
        ),
    ),
    "address_book": (
        Switch(
            "a server answers for the tools that it listed",
            gives(Claim.LISTED, "guard.memory.pins:ToolOffers.claim"),
            "by nobody",
        ),
        Switch(
            "what is contested vouches for nothing",
            put(property(lambda mapping: mapping), "guard.core.mappings:ToolMapping.restricting"),
            "let through",
        ),
    ),
    "tools": (
        Switch(
            "a name of two servers is neither's", gives(None, "guard.memory.pins:ToolOffers.note")
        ),
        Switch(
            "a mapping is its server's",
            around("guard.core.policy:Policy.server", _map_all),
            "mapped for",
        ),
    ),
    "init_guess": (
        Switch("nothing is allowed for its name", _mapped(_harmless)),
        Switch("no argument is a receiver for its name", _mapped(_receiving)),
        Switch("a server is known by what its user starts, not by its tools", _trust_tools),
    ),
    "known_programs": (
        Switch(
            "the path of a program is no package",
            put(_by_basename, "guard.policy.recognition:launched"),
            "program",
        ),
        Switch(
            "a runner is one of the path of commands",
            put(_base_name, "guard.policy.recognition:_program"),
            "runner",
        ),
    ),
    "mention": (
        Switch("a negation", put(NEVER, f"{READER}NEGATION"), "negated:"),
        Switch("a question", _clear(Reading.QUESTION), "question:"),
        Switch("a condition", put(NEVER, f"{READER}CONDITION"), "conditional:"),
        Switch("reported speech", put(NEVER, f"{READER}REPORTING"), "reported:"),
        Switch("distrust", put(NEVER, f"{READER}DISTRUST"), "distrusted:"),
        Switch("quoted text", put(str, f"{READER}without_quotations"), "quoted:"),
        Switch("code", put(str, f"{READER}without_code"), "coded:"),
        Switch("cited lines", put(NEVER, f"{READER}_FOREIGN_LINE"), "cited:"),
        Switch("forwarded text", no(f"{READER}begins_foreign"), "forwarded:"),
        Switch("tagged text", put(NEVER, f"{READER}_TAG"), "tagged:"),
        Switch("text behind a colon", put(NEVER, f"{READER}_COLON"), "behind a"),
        Switch("a letter", no(f"{READER}_is_salutation"), "after a greeting:"),
        Switch("announced text", no(f"{READER}_is_open"), "announced:"),
        Switch("a value is typed", around(f"{READER}typed_values", _any_word), "a word:"),
    ),
    "locations": (
        Switch(
            "the same site", gives(f"{sites.SITE}any", "guard.values.sites:_site"), "another host"
        ),
        Switch("shared hosts", no("guard.values.sites:is_shared"), "a shared host"),
        Switch("a form is no page", yes(f"{TRACING}_only_fetches"), "a form"),
        Switch("orders to a model", gives(None, f"{INTAKE}matched_pattern"), "with orders"),
        Switch(
            "exactly one recipient",
            put(_every_recipient, f"{DOCUMENTS}_only_recipient"),
            "two recipients",
        ),
        Switch(
            "the named document",
            gives((f"{named_documents.NAMED}bill.txt",), f"{INTAKE}names_of"),
            "another document",
        ),
        Switch("folders that are written to", put(frozenset(), f"{DOCUMENTS}WRITING"), "a folder"),
        Switch("a requested action", put(_delegated, f"{LADDER}_delegated"), "sum up"),
        Switch("what an agent wrote", put(_delegated, f"{LADDER}_delegated"), "the agent wrote"),
        Switch("after a recall", put(_delegated, f"{LADDER}_delegated"), "after a recall"),
        Switch(
            "one destination per field",
            put(
                lambda text: [f"mail:{one.strip()}" for one in text.split(",")],
                "guard.provenance.prompts:_stated",
            ),
            "two in one field",
        ),
    ),
    "scope": (
        Switch(
            "a saved label keeps its principal",
            every(
                around(f"{SETS}own", _own_of_all),
                around(f"{SETS}of_bucket", _bucket_of_all),
                gives(b"everyone", "guard.provenance.seal:Seal.principal"),
            ),
        ),
        Switch(
            "what the user named holds in its session",
            no("guard.provenance.saved_values:holds_in_session"),
        ),
        Switch(
            "what is to be remembered, and nothing else, outlasts it",
            put(re.compile(""), f"{READER}KEEPING"),
            "not to be remembered: ",
        ),
        Switch("the reader's own taint wins", no(f"{LADDER}_is_strangers")),
        Switch("a label ends", around(f"{LADDER}vouches", _forever), "ended"),
        Switch(
            "established is one principal's and one tool's",
            put(
                _of_anybody,
                *(f"guard.provenance.{one}:established_mark" for one in ("established", "lookups")),
            ),
            "sent_with_another_tool",
        ),
        Switch(
            "what was not sent establishes nobody",
            property_of(lambda _: False, "guard.core.calls:ToolResult.says_error"),
            "sent_in_vain",
        ),
    ),
    "session_change": (
        Switch(
            "a read of memory is its principal's",
            put(frozenset(), f"{INTAKE}READING_MEMORY"),
            "read:",
        ),
        Switch(
            "a no is its principal's",
            gives((), "guard.provenance.prompts:_restriction_writes"),
            "no:",
        ),
    ),
    "memory_gate": (
        Switch(
            "what is released was read",
            every(
                put(_nothing, "guard.pipeline.declarations:DeclarationHandler.note"),
                yes(f"{INTAKE}is_receipt"),
            ),
            "read ",
        ),
        Switch(
            "the candidate is the whole request",
            gives([], "guard.memory.candidate:further_texts", "guard.core.calls:further_texts"),
            "in ",
        ),
        Switch(
            "nothing is cut out of a prompt",
            around("guard.provenance.prompts:sentences_said", _in_pieces),
            "cut out of",
        ),
        Switch(
            "a text is judged in every reading",
            put(lambda texts: texts, "guard.memory.gate:_readings"),
            "written",
        ),
        Switch(
            "markup parts no words",
            gives((), "guard.memory.gate:without_markup"),
            "written in markup",
        ),
    ),
    "approvals": (
        Switch("a grant is one principal's", _unbind("principal"), "another principal"),
        Switch("a grant is for its session", _unbind("session"), "another session"),
        Switch(
            "a grant is for one server",
            _unbind("server", "upstream", "context"),
            "another listener",
        ),
        Switch("a grant is for one tool", _unbind("tool"), "tool"),
        Switch("a grant is for its arguments", _unbind("arguments"), "another text"),
        Switch("a grant is for one request", _unbind("context"), "header"),
        Switch("a grant is under one policy", _unbind("policy"), "policy"),
        Switch("a grant is for a tool as it was", _granting(_any_definition), "described as"),
        Switch(
            "a grant ends",
            every(_granting(_at_no_time), put(_lasting, "guard.provenance.label_sets:grant")),
            "later",
        ),
        Switch(
            "a grant is used once",
            around("guard.store.store:RedisSessionStore.attempt", _put_back),
            "twice",
        ),
    ),
    "roles": (
        Switch("every call is searched", gives((), f"{CLASSIFICATION}channels_in")),
        Switch(
            "what reaches somebody outside is a send",
            property_of(lambda _: False, "guard.core.calls:TracedCall.is_egress"),
        ),
        Switch(
            "ignored arguments are looked at",
            # A share that nobody requested is asked about as well.
            every(
                gives((), f"{CLASSIFICATION}receivers_in"),
                gives(None, f"{RULES}tool:ActionRule.judge"),
            ),
            " in permission",
        ),
        Switch("statements of SQL that reach out count", _in_both("statements_in", ()), "SQL:"),
        Switch(
            "unknown functions of SQL count",
            put(lambda _: iter(()), "guard.values.statements:_outside_of"),
            "SQL: a name",
        ),
        Switch(
            "statements of SQL are a closed list",
            gives(lambda _text, _dialect: [], "guard.values.statements:_parser"),
            "SQL: no known verb",
        ),
        Switch("paths are normalised", _in_both("climbing", None), "../"),
        Switch(
            "what is loaded by itself is a receiver",
            gives((), f"{CLASSIFICATION}loaded_in"),
            "picture:",
        ),
        Switch(
            "everybody is a receiver",
            no(f"{CLASSIFICATION}opened_to_everybody", f"{CLASSIFICATION}opens"),
            "opened:",
        ),
        Switch(
            "an argument's name makes it stricter", gives((), f"{CLASSIFICATION}named_in"), "named:"
        ),
        Switch("who is told of what is saved receives it", no(f"{CLASSIFICATION}tells"), "told:"),
        Switch("a draft that is sent is a send", no(f"{CLASSIFICATION}sends"), "sent:"),
        Switch("what is handed over has a receiver", _in_both("hands_over", None), "handed:"),
        Switch(
            "links beyond a bound may be tainted",
            around(f"{RULES}provenance:ProvenanceRule._about", _unbound),
            "link:",
        ),
    ),
    "quiet_receivers": (
        Switch(
            "an address that no mapping declares receives something",
            no(f"{CLASSIFICATION}is_address"),
            "mailbox",
        ),
        Switch(
            "a mailbox that a statement writes receives something",
            no("guard.values.channels:writes_values"),
            "statement",
        ),
        Switch(
            "a switch that no mapping declares needs a person",
            gives(None, f"{RULES}tool:UndeclaredRule.judge"),
            "switch",
        ),
    ),
    "previews": (
        Switch("a link that is previewed is a receiver", gives((), f"{CLASSIFICATION}linked_in")),
    ),
    "unjudged_bytes": (
        Switch("messages have closed grammars", gives(None, f"{MCP}unjudged_part")),
        Switch(
            "cursors and states were issued",
            yes("guard.pipeline.exchange:IssuedTokens.holds"),
            " cursor",
        ),
        Switch("a listener has one endpoint", yes(f"{MCP}McpProtocol.is_endpoint"), "customer"),
        Switch("a result answers an open request", put(None, f"{MCP}McpProtocol.answers_by_id")),
        Switch(
            "what is released is labelled",
            every(
                gives((), "guard.protocols.mcp.declarations:_other_texts"),
                no(f"{RESPONSE}ResponseHandler._is_awaited"),
            ),
        ),
        Switch(
            "what a provider fetches is a call",
            gives([], "guard.protocols.llm.apis:fetched"),
            "fetched:",
        ),
        Switch(
            "a member that a model API does not have is a call",
            gives([], "guard.protocols.llm.model_requests:ModelApi.others"),
            "option:",
        ),
        Switch("where a head leads is labelled", put((), f"{RESPONSE}LEADING"), "led:"),
        Switch(
            "what an event says beside its data is labelled",
            gives("", f"{RESPONSE}text_beside"),
            "in an event:",
        ),
        Switch(
            "a mailbox is no program's name",
            no("guard.protocols.mcp.grammar:is_mailbox"),
            "program:",
        ),
        Switch(
            "an answer has its question", around(f"{MCP}McpProtocol.parse", _all_asked), "unasked:"
        ),
        Switch(
            "answers to a server are sends", put(frozenset(), f"{TRACING}ANSWERS"), "answer: memory"
        ),
    ),
    "header_controls": (
        Switch(
            "heads have no line ends",
            put(re.compile(rb"(?!)"), "guard.pep.mitm.translation:_LINE_ENDS"),
            "line end:",
        ),
        Switch(
            "who the client is, the first proxy says",
            no("guard.protocols.http.message:is_forwarding"),
            "front:",
        ),
        Switch(
            "a header gives no other target, in any spelling",
            put(
                frozenset(
                    {
                        *("x-original-url", "x-rewrite-url"),
                        *("x-http-method-override", "x-method-override"),
                    }
                ),
                f"{MCP}OVERRIDING",
            ),
            "target:",
        ),
        Switch(
            "what is said of a connection ends with it",
            put(frozenset(), "guard.pep.mitm.translation:HOP"),
            "beside: connection",
        ),
        Switch(
            "a header that goes on is judged, whatever it is called",
            no("guard.protocols.http.metadata:is_sent_on"),
            "beside: proxy-",
        ),
        Switch(
            "a content type says a type and nothing more",
            put(lambda value: ";" not in value, "guard.protocols.http.metadata:_is_plain_type"),
            "beside: content-type",
        ),
    ),
    "policies": (
        Switch("limits count the principal", put(_sessions_alone, f"{RULES}limits:limit_windows")),
        Switch("private records are known again", _silent("provenance:PrivateBodyRule"), "ticket"),
        Switch("files and branches are looked at", _silent("argument:ArgumentRule")),
        Switch(
            "files that run are looked at",
            _silent("argument:ArgumentRule", "tool:ActionRule"),
            "a file that runs:",
        ),
        Switch(
            "a pull request is approved by its number",
            _silent("provenance:ProvenanceRule"),
            "an approval: ",
        ),
        Switch(
            "a mapping says all that a tool is told", _silent("tool:UndeclaredRule"), "besides: "
        ),
        Switch(
            "each says who receives",
            every(
                _silent("tool:DestinationRule"),
                put(_receiving_anybody, f"{RULES}provenance:ProvenanceRule._about"),
            ),
            "shipped: ",
        ),
        Switch("provenance decides", _silent("provenance:ProvenanceRule")),
        Switch(
            "a browser opens what was named", _silent("provenance:ProvenanceRule"), "a browser:"
        ),
        Switch("programs are listed", _silent("program:ProgramRule"), "a shell:"),
        Switch(
            "a command reads no file that a tool may not",
            no(f"{RULES}program:_Reader._is_refused"),
            ".env",
        ),
        Switch("files are in the workspace", _silent("expression:ExpressionRule"), "a credential:"),
        Switch(
            "money goes where it came from",
            _silent("expression:ExpressionRule"),
            "money elsewhere:",
        ),
        Switch(
            "many small payments are a large one", _silent("limits:RateRule"), "money in parts:"
        ),
        Switch(
            "unknown tools are no harmless ones",
            _silent("tool:DestinationRule"),
            "examples/strict.yaml: ",
        ),
    ),
}
"""Switches by class."""
