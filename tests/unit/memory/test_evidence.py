"""What a save is made of, by what was read before it."""

from dataclasses import replace

import pytest

from guard.core.calls import ClassifiedCall, untraced
from guard.core.labels import SavedText
from guard.core.memory import SourceType
from guard.core.model import ROLES, Identity, Integrity, Role, ToolCall
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.memory.candidate import LabelledEvidence

CALL = ClassifiedCall(ToolCall("c", Identity("p", "s"), "save_fact", {}, "mcp", 0.0), Role.SAVE)
SAVE = replace(untraced(CALL), saved=SavedText(Integrity.ADVISORY))


def _window(role, *, flight=False):
    attempted = tuple(int(each is role) for each in ROLES)
    trajectory = Trajectory() if flight else Trajectory.of([role])
    return Window(trajectory=trajectory, attempted=attempted)


READ = [
    {scope: _window(role, flight=flight)}
    for role in (Role.RECALL, Role.LIST)
    for scope in ("session", "principal")
    for flight in (False, True)
]


@pytest.mark.parametrize(
    ("saving", "windows"),
    [
        *((SAVE, windows) for windows in READ),
        # A result that was released while the store was away may have held anything.
        (SAVE, {"principal": Window(unlabelled=1)}),
        # A call that nobody traced is no evidence of anything good.
        (untraced(CALL), {}),
    ],
)
def test_whoever_may_have_read_may_be_writing_it(fact_policy, saving, windows):
    """A read in the session, by the principal, still in flight or unlabelled taints the save."""
    evidence = LabelledEvidence(fact_policy).evidence(saving, replace(Snapshot(), **windows))

    assert SourceType.TOOL_RESULT in evidence.types
    assert evidence.integrity is Integrity.UNTRUSTED


def test_a_session_that_has_read_nothing_writes_its_own_inference(fact_policy):
    """Never the user's words: nothing on the wire proves that the user said it."""
    evidence = LabelledEvidence(fact_policy).evidence(SAVE, Snapshot())

    assert evidence.types == {SourceType.MODEL_INFERENCE}
