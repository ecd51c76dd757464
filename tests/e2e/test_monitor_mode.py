"""Monitor mode watches and blocks nothing, and says what it would have done."""

import pytest

from tests.e2e.running_guard import ROOT, serving, tool_call


@pytest.fixture(scope="module")
def observer(tmp_path_factory):
    """Return a guard with the shipped observe policy."""
    policy = ROOT / "policies" / "examples" / "observe.yaml"
    with serving(tmp_path_factory.mktemp("observe"), policy=policy) as guard:
        yield guard


def test_what_would_be_blocked_passes_and_is_recorded_as_would_have_blocked(
    observer,
):
    """The record says block, the wire says allow: shadow mode never rewrites the verdict."""
    _, answer = observer.post(tool_call("a@evil.test"))

    line = observer.audit()[-1]
    assert answer["result"]["content"][0]["text"] == "done"
    assert (line["enforced"], line["would_have_blocked"]) == ("allow", True)
    assert line["action"] in {"ask", "block"}
    assert observer.metric("guard_would_have_blocked_total") == 1


def test_what_cannot_be_read_passes_and_is_recorded(observer):
    """An unreadable message is forwarded byte for byte in monitor mode."""
    before = len(observer.upstream.received)

    observer.post(b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "tools/call"}')

    assert b'"id": 1, "id": 2' in bytes(observer.upstream.received[before:])
    line = observer.audit()[-1]
    assert (line["code"], line["enforced"]) == ("duplicate_key", "allow")
