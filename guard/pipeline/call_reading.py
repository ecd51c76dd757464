"""The passes over the calls of a large message, before the store is asked.  Pure: no I/O.

A large message is read in another process (``guard/processes/separate_process.py``), so
its calls and as much of the policy as they need can be pickled.  The same functions read it in a
thread where there is no such process.  All calls of a message share one budget of work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from guard.core.calls import Claim, ClassifiedCall, write_of, writes_about
from guard.core.mappings import bare_mapping
from guard.core.model import Finding, Role, ToolCall
from guard.core.trajectory import Snapshot
from guard.core.work import WorkBudget, WorkExceededError, spend_structure, within
from guard.pipeline.classification import claimed_mapping, classify
from guard.provenance.approvals import Approvals
from guard.provenance.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.labels import LabelLookup, LabelQuery
    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.provenance.seal import Seal

    Findings = Mapping[str, Sequence[Finding] | str]
    """Findings by detector, or the type of its error."""


class CallQuestion(NamedTuple):
    """A call that is to be read."""

    policy: Policy
    call: ToolCall
    claim: Claim
    """Claim of its server to the tool's name."""
    place: str
    """Server that the tool is called at, empty where it is unknown."""
    pin: LabelLookup | None
    """Look-up of its tool's definition."""
    recall: bool | None
    """None unless it reads a resource of a server that keeps a memory; else True for a private
    one."""
    detectors: tuple[Detector, ...] = ()
    """Detectors that look at the arguments alone."""


class CallReading(NamedTuple):
    """A call that was read."""

    classified: ClassifiedCall
    tracing: Tracing | None
    query: LabelQuery | None
    grant: str
    """Digest under which a grant of exactly this call is on record."""
    findings: Findings
    errors: tuple[str, ...]
    """Errors, each of which blocks the call."""

    def of(self, question: CallQuestion) -> CallReading:
        """Return the reading with the call and the mappings of its question.

        Neither came back with it: another process has only copies of them.
        """
        policy, call, found = question.policy, question.call, self.classified
        mapping, write = found.mapping, found.memory_write
        if mapping is not None:
            own = claimed_mapping(policy, call, question.claim) or mapping
            if own.role is not mapping.role:
                own = replace(own, role=mapping.role, private=mapping.private)
            mapping = own
        if write is not None and policy.memory is not None:
            write = write_of(policy.memory, call, found.role, mapping)
        return self.reclassified(replace(found, call=call, mapping=mapping, memory_write=write))

    def reclassified(self, classified: ClassifiedCall) -> CallReading:
        """Return the reading of the same call with another classification."""
        if self.tracing is not None:
            self.tracing.attach(classified)
        return self._replace(classified=classified)


def portable_question(question: CallQuestion) -> CallQuestion:
    """Return a question that can be pickled: rules and patterns are functions of this process."""
    policy, call = question.policy, question.call
    mapping = policy.mapping(call.tool, call.server, call.upstream)
    memory = policy.memory and writes_about(policy.memory, call)
    part = policy.about(call, mapping and bare_mapping(mapping), memory)
    return question._replace(policy=part)


def read_calls(seal: Seal, questions: Sequence[CallQuestion]) -> list[CallReading]:
    """Return the readings of the calls of one message, without the arguments.

    Raises:
        WorkExceededError: the message needs more work than one message may.
    """
    found: list[CallReading] = []
    with within(WorkBudget()):
        for question in questions:
            spend_structure(dict(question.call.arguments))
        for question in questions:
            reading = read_call(seal, question)
            bare = replace(reading.classified, call=replace(question.call, arguments={}))
            found.append(reading.reclassified(bare))
    return found


def read_call(seal: Seal, question: CallQuestion) -> CallReading:
    """Return the reading of a call; an error is noted in it, and blocks the call.

    Raises:
        WorkExceededError: the message needs more work than one message may.
    """
    stage = "classify"
    try:
        classified = classified_at(question)
        if question.policy.destinations.allowed_until and classified.targets:
            now = question.policy.allowed_now(classified.targets, question.call.at)
            classified = replace(classified, targets=now)
        stage = "provenance"
        tracing = Tracing(seal, question.policy, classified)
        query = tracing.query(question.pin)
        grant = Approvals.digest(question.policy, question.call)
    except WorkExceededError:
        raise
    except Exception as error:  # noqa: BLE001  (what cannot be read must end in a block)
        errors = (f"{stage}: {type(error).__name__}",)
        return CallReading(ClassifiedCall(question.call, Role.OTHER), None, None, "", {}, errors)
    findings = _findings(question, classified) if question.detectors else {}
    return CallReading(classified, tracing, query, grant, findings, ())


def _findings(question: CallQuestion, classified: ClassifiedCall) -> Findings:
    found: dict[str, Sequence[Finding] | str] = {}
    for detector in question.detectors:
        try:
            found[detector.name] = tuple(detector.inspect(classified, Snapshot()))
        except WorkExceededError:
            raise
        except Exception as error:  # noqa: BLE001  (noted, and it blocks the call)
            found[detector.name] = type(error).__name__
    return found


def classified_at(question: CallQuestion) -> ClassifiedCall:
    """Return what the policy says of a call to its server.

    A resource of a server that keeps a memory is read as a recall.
    """
    found = classify(question.policy, question.call, question.claim, question.place)
    mapping = found.mapping
    if question.recall is None or mapping is None or mapping.role is not Role.RETRIEVE:
        return found
    private = mapping.private or question.recall
    recalls = replace(mapping, role=Role.RECALL, private=private)
    return replace(found, role=Role.RECALL, mapping=recalls)
