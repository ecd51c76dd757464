"""Parts of a call and of a policy that the PDP relies on: matrices of their promises."""

import json
import pickle
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core import work
from guard.core.bounded_cache import bounded_cache
from guard.core.calls import (
    DECLARED,
    SAVING,
    UNMAPPED,
    ClassifiedCall,
    Target,
    ToolResult,
    untraced,
    write_of,
    writes_about,
)
from guard.core.declarations import ToolDefinition
from guard.core.jsonpath import compile_path
from guard.core.labels import Attestation, Channel, LabelRecord, Rung
from guard.core.mappings import (
    ActionMapping,
    ArgumentRules,
    MappingSource,
    MemoryPolicy,
    MessageFields,
    MessageReading,
    ProposalMapping,
    ReadMapping,
    ResultField,
    ServerEntry,
    ToolMapping,
    WriteMapping,
    bare_mapping,
)
from guard.core.memory import MemoryClass
from guard.core.model import Destination, DestinationStatus, Identity, Integrity, Role, ToolCall
from guard.core.policy import (
    EVIDENCE_TARGETS,
    MEMO_LIMIT,
    Action,
    AskSettings,
    DestinationLists,
    Elicitation,
    Mode,
    Policy,
    Reason,
    Verdict,
    blocked_for,
    decide_result,
    worst,
)
from guard.core.tool_patterns import ToolPattern

MAIL = Destination("mail", "a@b.example")
EMPTY = Policy("p", "digest", Mode.ENFORCE, (), ())
PATH = compile_path("$.to")


def call(tool="save", protocol="mcp", **arguments):
    """Return a call."""
    return ToolCall("id", Identity("p", "s"), tool, arguments, protocol, 0.0)


def mapping(tool="save", role=Role.SAVE, **more):
    """Return a mapping of one tool."""
    return ToolMapping(tool, frozenset([tool]).__contains__, role, **more)


def write(store="notes", tool="save", **more):
    """Return a mapping of a write."""
    return WriteMapping(tool, frozenset([tool]).__contains__, store, MemoryClass.L1, **more)


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "store", "declared", "expected"),
    [
        (Role.SAVE, "", None, ""),
        (Role.SAVE, "own", None, "own"),
        (Role.SEND, "own", None, ""),
        (Role.SEND, "own", write(""), "own"),
        (Role.SEND, "", write(""), "default"),
        (Role.SAVE, "own", write("notes"), "notes"),
    ],
)
def test_the_store_of_a_save_is_that_of_its_write(role, store, declared, expected):
    """An entry of the memory section comes before the tool's mapping."""
    found = ClassifiedCall(call(), role, mapping(role=role, store=store), declared)
    assert found.saves_to == expected


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("status", list(DestinationStatus))
@pytest.mark.parametrize("kind", ["mail", "text", "missing"])
def test_only_external_receivers_of_sends_and_actions_become_established(role, status, kind):
    """A value that nobody receives at is never one."""
    targets = (Target(Destination(kind, "a@b.example"), status),)
    action = ActionMapping("delete")
    external = role is Role.SEND and status is DestinationStatus.EXTERNAL and kind == "mail"

    plain = ClassifiedCall(call(), role, mapping(role=role), targets=targets)
    acting = replace(plain, mapping=mapping(role=role, action=action))

    assert [*plain.receivers()] == [*targets] * external
    assert [one.destination.kind for one in acting.receivers()] == ["action", *["mail"] * external]


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("status", list(DestinationStatus))
@pytest.mark.parametrize("tells", [False, True])
def test_a_call_is_egress_if_it_reaches_an_outsider_and_is_no_send(role, status, tells):
    """What is saved or drafted stays inside, unless the call tells somebody."""
    found = untraced(ClassifiedCall(call(), role, targets=(Target(MAIL, status),), tells=tells))
    outside = status in {DestinationStatus.EXTERNAL, DestinationStatus.DENIED}

    assert found.is_egress is (outside and (tells or role not in {*SAVING, Role.SEND}))
    assert not replace(found, targets=()).is_egress
    assert not found.classified.may_lack_receivers


@pytest.mark.parametrize("rung", [None, Rung.TAINTED, Rung.UNKNOWN, Rung.PROMPTED])
@pytest.mark.parametrize("status", list(DestinationStatus))
def test_a_suspect_counts_if_untrusted_text_names_it_or_it_is_denied(rung, status):
    """A guess that nobody wrote is no destination."""
    suspect = Target(MAIL, status, attestation=rung and Attestation(rung, "x"))
    found = untraced(ClassifiedCall(call(), Role.SEND, suspects=(suspect,)))
    counts = rung is Rung.TAINTED or status is DestinationStatus.DENIED
    assert found.targets == (suspect,) * counts


@pytest.mark.parametrize(
    ("content", "is_error"),
    [({"isError": True}, True), ({"isError": 1}, True), ({"isError": False}, False), ({}, False),
     ("x", False)],
)  # fmt: skip
def test_a_result_says_that_it_is_an_error(content, is_error):
    """Only an object can; anything but false counts."""
    assert (
        ToolResult(untraced(ClassifiedCall(call(), Role.SEND)), content, 0.0).says_error is is_error
    )


@pytest.mark.parametrize(
    ("role", "mapped", "default", "store", "expected"),
    [
        (Role.SAVE, False, True, "", UNMAPPED),
        (Role.SAVE, True, False, "own", UNMAPPED),
        (Role.SAVE, True, True, "", None),
        (Role.SAVE, True, True, "own", replace(DECLARED, store="own", key=PATH)),
        (Role.SEND, True, True, "own", None),
    ],
)
def test_a_save_without_an_entry_is_a_write_of_the_highest_class(
    role, mapped, default, store, expected
):
    """Under the default matrix, a save into a declared store is one of the lowest."""
    memory = MemoryPolicy({}, {}, (), is_default=default)
    claimed = mapping(role=role, store=store, item=PATH) if mapped else None
    assert write_of(memory, call(), role, claimed) == expected


POST = call("http.request", "http", method="POST", url="https://x.test/add?a=1")


@pytest.mark.parametrize(
    ("one", "store", "expected"),
    [
        (call(), "", "a"),
        (call(), "b", "b"),
        (call(), "other", "a"),
        (POST, "", "web"),
        (replace(POST, arguments={**POST.arguments, "method": "GET"}), "", None),
        (replace(POST, arguments={**POST.arguments, "url": "https://x.test/b"}), "", None),
        (call("else"), "", None),
    ],
)
def test_an_entry_claims_a_write_by_tool_store_method_and_path(one, store, expected):
    """The part of the policy that is about one call claims it likewise, and can be pickled."""
    by_path = write("web", "http.request", methods=frozenset({"POST"}), path="/add".__eq__)
    memory = MemoryPolicy({}, {}, (write("a"), write("b"), by_path))
    for policy in (memory, pickle.loads(pickle.dumps(writes_about(memory, one)))):
        found = write_of(policy, one, Role.SEND, mapping(store=store))
        assert (found and found.store) == expected


@pytest.mark.parametrize(
    ("tool", "store", "found"),
    [("read", "", "a"), ("read", "b", "b"), ("read", "c", "a"), ("x", "", None)],
)
def test_an_entry_claims_a_read_by_tool_and_store(tool, store, found):
    """And a proposal by its tool."""
    reads = (ReadMapping("read".__eq__, "a"), ReadMapping("read".__eq__, "b"))
    proposal = ProposalMapping("read".__eq__, PATH, PATH)
    memory = MemoryPolicy({}, {}, (), proposals=(proposal,), reads=reads)
    read = memory.read(tool, store)
    assert (read and read.store) == found
    assert memory.proposal(tool) is (proposal if found else None)


# --- mappings -------------------------------------------------------------------------------------


def test_a_mapping_of_another_server_vouches_for_nothing():
    """Its restrictions stay, and what a call would be allowed by goes."""
    kept = ResultField(PATH, Integrity.TRUSTED)
    directory = ResultField(PATH, Integrity.TRUSTED, Channel.DIRECTORY, ends=5.0)
    reading = MessageReading(
        messages=MessageFields(PATH, PATH, PATH), named_by=PATH, delegates=frozenset({"pay"})
    )
    whole = mapping(
        source=Integrity.TRUSTED,
        fields=(kept, directory),
        reading=reading,
        arguments=ArgumentRules(guarded=(PATH,), ignore=(PATH,), inert=(PATH,)),
        may_lack_receivers=True,
    )
    bare, restricting = whole.unattested, whole.restricting

    assert (bare.attests, bare.source, bare.fields) == (False, Integrity.UNTRUSTED, (kept,))
    assert (bare.reading.messages, bare.reading.delegates) == (None, frozenset())
    assert bare.reading.named_by is PATH
    assert restricting.reading.named_by is None
    assert restricting.arguments.guarded == (PATH,)
    assert not restricting.arguments.ignore + restricting.arguments.inert
    assert not restricting.may_lack_receivers
    assert [len(whole.declared_at(at).fields) for at in (4.0, 5.0)] == [2, 1]
    assert bare.declared_at(9.0) is bare
    literal = MappingSource(patterns=(ToolPattern.parse("save"),))
    assert (
        pickle.loads(pickle.dumps(bare_mapping(replace(whole, declared=literal)))).role is Role.SAVE
    )
    assert bare_mapping(replace(whole, declared=literal)).declared.patterns == ()


@pytest.mark.parametrize(
    ("entry", "at", "expected"),
    [
        (("", ""), ("l:1", "h.test:2/p"), True),
        (("l:1", ""), ("l:1", "h.test"), True),
        (("l:1", ""), ("l:2", "h.test"), False),
        (("", "h.test"), ("l:1", "h.test:2/p"), True),
        (("", "h.test:2"), ("l:1", "h.test:2/p"), True),
        (("", "h.test:2/p"), ("l:1", "h.test:2/p"), True),
        (("", "h.test:2/q"), ("l:1", "h.test:2/p"), False),
        (("", "test"), ("l:1", "h.test"), False),
    ],
)
def test_a_server_is_at_its_listener_and_upstream(entry, at, expected):
    """Host, port and path count as far as the entry has them."""
    server = ServerEntry("one", *entry)
    assert server.is_at(*at) is expected
    assert server.is_placed is any(entry)


def test_a_mapping_of_the_own_server_comes_first():
    """Whatever was looked up before, and whatever the order in the file."""
    of_all, own = mapping(role=Role.SEND), mapping(role=Role.SAVE, server="one")
    entry = ServerEntry("one", upstream="h.test")
    for tools in ((of_all, own), (own, of_all)):
        policy = replace(EMPTY, tools=tools, servers=(entry,))
        for _ in range(2):
            assert policy.mapping("save", "", "h.test") is own
            assert policy.mapping("save", "", "other.test") is of_all
            assert policy.mapping("else") is None
        assert policy.names_server(own)
        assert not policy.names_server(of_all)
    for number in range(MEMO_LIMIT + 9):
        policy.mapping(f"invented{number}")
    assert len(policy.index.mappings) == MEMO_LIMIT
    for number in range(MEMO_LIMIT + 9):
        policy.rules_about(untraced(ClassifiedCall(call(f"invented{number}"), Role.SEND)))
    assert len(policy.index.alike) == MEMO_LIMIT


def test_the_part_of_a_policy_about_a_call_reads_it_alike():
    """It can be pickled: without rules, and with the lists of this principal only."""
    lists = DestinationLists(established={("p", "save"): bool, ("q", "save"): bool})
    policy = replace(EMPTY, tools=(mapping(),), destinations=lists)
    for known, tool in ((mapping(), "save"), (None, "else")):
        part = policy.about(call(tool), known and bare_mapping(known), None)
        assert (part.mapping(tool) is None) is (known is None)
        assert part.rules == ()
        assert [*part.destinations.established] == [("p", "save")] * bool(known)
        part.needs.actions.lists("delete", tool)


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("mode", list(Mode))
def test_a_further_reason_only_tightens_a_verdict(action, mode):
    """A question never frees a block, and a block stays one."""
    verdict = Verdict(action, mode, (Reason("a", "r", action),), "digest", decided_by=("r",))
    reason = Reason("b", "", Action.ASK)

    assert verdict.asked(reason).action is max(action, Action.ASK)
    assert verdict.blocked(reason, "late").action is Action.BLOCK
    assert (verdict.blocked(reason).reasons[0], verdict.blocked(reason).decided_by) == (reason, ())
    assert blocked_for(None, reason).reasons == (reason,)
    assert verdict.blocked(reason, "late").errors == ("late",)
    assert verdict.enforced is (action if mode is Mode.ENFORCE else Action.ALLOW)
    assert verdict.would_have_blocked is (mode is Mode.MONITOR and action >= Action.ASK)
    assert worst((Action.ALLOW, action)) is action
    assert worst(()) is Action.BLOCK
    assert blocked_for(None, reason).enforced is Action.BLOCK
    assert blocked_for(replace(EMPTY, mode=mode), reason).mode is mode


def test_evidence_names_no_value_and_few_targets():
    """Neither the recipient nor the contents of a record are in it."""
    record = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 3, 0.0, b"s" * 8, "read_file")
    attested = Attestation(Rung.TAINTED, "x", record, vector="memory", saturated=True)
    bare = Target(MAIL, DestinationStatus.EXTERNAL, "$.to")
    targets = (replace(bare, attestation=attested), *[bare] * EVIDENCE_TARGETS)
    found = Reason("a", "r", Action.ASK, targets=targets, attested=attested).evidence

    assert (found["call"], found["source"], found["vector"]) == (3, "read_file", "memory")
    assert (len(found["targets"]), found["target_count"]) == (EVIDENCE_TARGETS, len(targets))
    assert found["targets"][1] == {"standing": "external", "kind": "mail", "path": "$.to"}
    assert "a@b.example" not in json.dumps(found)
    assert Reason("a", "r", Action.ASK).evidence == {}
    unknown = Reason("a", "r", Action.ASK, attested=Attestation(Rung.UNKNOWN, "x")).evidence
    assert unknown == {"rung": "unknown", "why": "x"}


@pytest.mark.parametrize(("rules", "principal"), [*product([(), ("a",), ("a", "b")], ["p", "q"])])
def test_a_person_at_the_client_is_asked_only_about_the_listed_rules(rules, principal):
    """All rules that ask must be listed, and the principal too."""
    settings = AskSettings(elicit=(
        Elicitation("form", rules=frozenset({"a"})),
        Elicitation("url", principals=frozenset({"p"})),
    ))  # fmt: skip
    expected = ["form"] * (rules == ("a",)) + ["url"] * (principal == "p")
    assert settings.elicits(principal, frozenset(rules)) == expected


@pytest.mark.parametrize("kind", ["mail", "malformed", "missing"])
@pytest.mark.parametrize(("denied", "internal", "allowed"), [*product([True, False], repeat=3)])
def test_a_deny_beats_every_allow(kind, denied, internal, allowed):
    """A destination that nobody can mean is neither allowed nor internal."""
    lists = DestinationLists(
        is_denied=lambda _: denied, is_internal=lambda _: internal, is_allowed=lambda _: allowed
    )
    found = replace(EMPTY, destinations=lists).status_of(Destination(kind, "a@b.example"))
    order = [(kind == "malformed", "malformed"), (kind == "missing", "missing")]
    order += [(denied, "denied"), (internal, "internal"), (allowed, "allowed"), (True, "external")]
    assert found.value == next(name for holds, name in order if holds)


@pytest.mark.parametrize("status", list(DestinationStatus))
@pytest.mark.parametrize("at", [4.0, 5.0])
def test_a_dated_entry_allows_external_destinations_until_it_ends(status, at):
    """It frees nothing that is denied or unreadable."""
    lists = DestinationLists(allowed_until=((lambda one: one == MAIL, 5.0),))
    policy = replace(EMPTY, destinations=lists)
    targets = (Target(MAIL, status), Target(Destination("mail", "c@d.example"), status))
    first, second = policy.allowed_now(targets, at)
    allowed = status is DestinationStatus.EXTERNAL and at < 5.0
    assert first.status is (DestinationStatus.ALLOWED if allowed else status)
    assert second.status is status


class OnResults:
    """A rule on results."""

    id = "r"

    def __init__(self, found):
        self.found = found

    def match(self, situation):
        return None

    def asks(self, call):
        return frozenset()

    def match_result(self, call, evidence):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize("found", [None, Reason("a", "r", Action.BLOCK), ValueError("x")])
def test_a_rule_on_results_that_raises_withholds(found):
    """Without a reason of any rule, the result is released."""
    policy = replace(EMPTY, rules=(OnResults(found), OnResults(None)))
    verdict = decide_result(policy, ClassifiedCall(call(), Role.SEND), {})
    assert (verdict is None) is (found is None)
    assert verdict is None or verdict.action is Action.BLOCK


# --- work and names -------------------------------------------------------------------------------

JSON = st.recursive(
    st.text(max_size=3) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


@given(value=JSON, limit=st.integers(0, 2000))
def test_a_budget_is_spent_by_every_value(value, limit):
    """It stops before it is exceeded, and nothing is counted outside of a message."""
    work.spend_structure(value)
    work.spend(limit)
    with work.within(work.WorkBudget(None)) as counted:
        work.spend_structure(value)
        work.spend(1)
    assert counted.left is None
    assert counted.spent > 1
    with work.within(work.WorkBudget(limit)) as budget:
        if counted.spent > limit:
            with pytest.raises(work.WorkExceededError):
                work.spend(counted.spent)
        else:
            work.spend(counted.spent)
            assert budget.left == limit - counted.spent
    assert work.CURRENT_BUDGET.get() is None


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 70_000 + b"1]",
        b"[" * 140_000,
        b'[{"":' * 45_000,
        b'["' + b"a," * 99 + b'"]',
        b"x,",
    ],
)
def test_a_body_that_may_not_exceed_is_never_refused(body):
    """The cheap look is stricter than the exact one."""
    may, exceeds = work.may_exceed(body), False
    try:
        work.measure(body)
    except work.WorkExceededError:
        exceeds = True
    assert may is exceeds is (len(body) > 1000)


@pytest.mark.parametrize("text", ["short", "long " * 9])
def test_a_cached_function_costs_a_message_the_same_each_time(text):
    """Whatever was read before it, with and without a budget."""

    @bounded_cache(4, short=10)
    def read(text):
        work.spend(len(text))
        if text.endswith("!"):
            reached.append(text)
        return text.upper()

    spent, reached = [], []
    for _ in range(3):
        assert read(text) == text.upper()
        with work.within(work.WorkBudget()) as budget:
            assert read(text) == text.upper()
        spent.append(budget.spent)
    assert spent == [len(text)] * 3
    for _ in range(2):
        with work.within(work.WorkBudget(1)), pytest.raises(work.WorkExceededError):
            read(f"{text}!")
    assert reached == []


@pytest.mark.parametrize(
    ("more", "is_same"),
    [
        ({"_meta": {"x.test/trace": 1}}, True),
        ({"_meta": "odd"}, True),
        ({"description": "a"}, False),
    ],
)
def test_a_definition_is_known_by_all_that_a_client_may_show(more, is_same):
    """Metadata that no client shows does not count."""
    whole = ToolDefinition("t", {"name": "t", **more})
    assert (whole.digest == ToolDefinition("t", {"name": "t"}).digest) is is_same
