"""The counters give the paper's features, for any sequence."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from guard.core.model import Role
from guard.core.trajectory import FEATURES_13, FEATURES_19, Trajectory, Window

SEQUENCES = st.lists(st.sampled_from(list(Role)), max_size=40)


def features_of_the_log(log):
    """Compute the features from the whole log, as the paper's extract_features does."""

    def count(role):
        return sum(item is role for item in log)

    def pair(first, second):
        return sum(a is first and b is second for a, b in itertools.pairwise(log))

    recalls = [i for i, role in enumerate(log) if role is Role.RECALL]
    sends = [i for i, role in enumerate(log) if role is Role.SEND]
    chains = [len(list(g)) for role, g in itertools.groupby(log) if role is Role.RECALL]
    return {
        "recall_count": count(Role.RECALL),
        "list_count": count(Role.LIST),
        "save_count": count(Role.SAVE),
        "draft_count": count(Role.DRAFT),
        "send_count": count(Role.SEND),
        "rag_count": count(Role.RETRIEVE),
        "seq_len": len(log),
        "send_without_recall": float(bool(sends) and not recalls),
        "recall_before_send": float(bool(recalls) and bool(sends) and min(recalls) < max(sends)),
        "recall_to_send_ratio": len(recalls) / max(len(sends), 1),
        "max_recall_chain": max(chains, default=0),
        "list_then_recall": pair(Role.LIST, Role.RECALL),
        "recall_then_recall": pair(Role.RECALL, Role.RECALL),
        "recall_then_draft": pair(Role.RECALL, Role.DRAFT),
        "list_then_draft": pair(Role.LIST, Role.DRAFT),
        "draft_then_send": pair(Role.DRAFT, Role.SEND),
        "first_tool_is_list": float(log[:1] == [Role.LIST]),
        "first_tool_is_recall": float(log[:1] == [Role.RECALL]),
        "first_tool_is_draft": float(log[:1] == [Role.DRAFT]),
    }


@given(SEQUENCES)
def test_the_incremental_trajectory_equals_the_features_of_the_whole_log(log):
    """Folding append over a log gives what the log gives at once."""
    expected = features_of_the_log(log)

    trajectory = Trajectory.of(log)

    assert trajectory.features_19() == tuple(expected[name] for name in FEATURES_19)
    assert trajectory.features_13() == tuple(expected[name] for name in FEATURES_13)


@given(SEQUENCES)
def test_the_prefix_features_do_not_see_the_send(log):
    """The 13 features are the 19 without those that only a send can change."""
    assert len(FEATURES_19) - len(FEATURES_13) == 6
    assert set(FEATURES_13) < set(FEATURES_19)

    before = Trajectory.of(log)

    assert before.append(Role.SEND).features_13() == before.features_13() or not log


def test_an_attempt_that_may_have_been_executed_counts_as_possible():
    """A call in flight is neither executed nor refused, and is seen."""
    window = Window(attempted=(2, 0, 0, 0, 0, 0, 0), refused=(1, 0, 0, 0, 0, 0, 0))

    assert window.trajectory.count(Role.RECALL) == 0
    assert window.possible(Role.RECALL) == 1
