"""What ``guard init`` makes of the tools of real servers, against the truth about them."""

from collections import Counter

from guard.core.jsonpath import compile_path
from guard.core.mappings import ToolMapping
from guard.core.model import Role
from guard.policy_files import recognition
from lab.adopt import truth


def mapping(role, *paths):
    """Return a mapping of a role, with destinations."""
    return ToolMapping(
        "x", lambda _: True, role, destinations=tuple(compile_path(path) for path in paths)
    )


def test_every_tool_of_twelve_servers_is_mapped_no_looser_than_the_truth():
    """And most of them as the truth says."""
    judged = truth.judged()
    found = Counter(one.outcome for one in judged)

    assert len({one.server for one in judged}) == 12
    assert found["looser"] == 0, [one for one in judged if one.outcome == "looser"]
    assert found["right"] / len(judged) >= 0.8


def test_without_recognition_nothing_is_looser_either(monkeypatch):
    """An unknown server's sends are judged, everything else is asked about."""
    monkeypatch.setattr(recognition, "profiles_of", lambda _: ())
    judged = truth.judged()

    assert [one for one in judged if one.outcome == "looser"] == []
    assert sum(one.outcome == "right" for one in judged) / len(judged) < 0.5


def test_the_measure_knows_what_is_looser():
    """A send as anything else, fewer receivers, a save as a read, a question as an answer."""
    outcome = truth.outcome

    assert outcome({"role": "send", "destinations": ["to"]}, mapping(Role.RETRIEVE))[0] == "looser"
    assert (
        outcome({"role": "send", "destinations": ["to", "cc"]}, mapping(Role.SEND, "$.to"))[0]
        == "looser"
    )
    assert outcome({"role": "save"}, mapping(Role.RECALL))[0] == "looser"
    assert outcome({"role": "ask"}, mapping(Role.OTHER))[0] == "looser"
    assert outcome({"role": "retrieve"}, mapping(Role.SEND, "$.to"))[0] == "stricter"
    assert outcome({"role": "retrieve"}, None)[0] == "stricter"
    assert outcome({"role": ["list", "recall"]}, mapping(Role.LIST))[0] == "right"
