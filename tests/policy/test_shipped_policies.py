"""What the shipped policies decide, from the call's arguments to the verdict."""

from pathlib import Path

import pytest

from guard.core.calls import untraced
from guard.core.model import Finding, Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Situation, decide
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.pipeline.classification import classify
from guard.policy import load_policies
from guard.settings import builtin_policies

POLICIES = Path(__file__).parents[2] / "policies"
INSIDE, OUTSIDE = "team@example.com", "mallory@attacker.example"


@pytest.fixture(scope="module")
def default():
    """Return the default policy."""
    return load_policies([POLICIES / "default.yaml"])


@pytest.fixture(scope="module")
def observe():
    """Return the example that watches."""
    return load_policies([POLICIES / "examples" / "observe.yaml"])


def _decide(policy, tool, arguments, before=(), score=0.1):
    call = classify(policy, ToolCall("id", Identity("p", "s"), tool, arguments, "mcp", 0.0))
    trajectory = Trajectory.of(before)
    window = Window(trajectory, attempted=trajectory.executed)
    found = ()
    if score is not None:
        found = (Finding("d", "prefix_score", score, data={"model": "prefix-13"}),)
    return decide(policy, Situation(untraced(call), Snapshot(window, window), found))


def _mail(to, **more):
    return {"to": to, "subject": "Status", "body": "All is well.", **more}


@pytest.mark.parametrize(
    ("tool", "arguments", "action", "codes"),
    [
        ("email_send_email", _mail(INSIDE), "allow", {"provenance_listed"}),
        (
            "send_email",
            {"recipients": [INSIDE], "subject": "s", "body": "b"},
            "allow",
            {"provenance_listed"},
        ),
        ("email_send_email", _mail(OUTSIDE), "ask", {"provenance_unknown"}),
        (
            "send_email",
            {"recipients": [INSIDE, OUTSIDE], "body": "b"},
            "ask",
            {"provenance_unknown"},
        ),
        ("email_send_email", _mail(INSIDE, cc=OUTSIDE), "ask", {"provenance_unknown"}),
        ("email_send_email", _mail(INSIDE, reply_hook=OUTSIDE), "ask", {"provenance_unknown"}),
        ("email_send_email", _mail(f"{INSIDE}, {OUTSIDE}"), "ask", {"provenance_unknown"}),
        ("email_send_email", _mail("team@sub.example.com"), "ask", {"provenance_unknown"}),
        ("email_send_email", {"subject": "s", "body": "b"}, "block", {"destination_missing"}),
        ("email_send_email", _mail([{"x": {}}]), "block", {"destination_malformed"}),
        ("share_document", {"to": OUTSIDE}, "ask", {"provenance_unknown"}),
        ("share_document", {"to": INSIDE}, "allow", {"provenance_listed"}),
        ("email_draft_email", _mail(OUTSIDE), "allow", {"tool_role"}),
        ("memory_save_fact", {"key": "k", "value": f"mail {OUTSIDE}"}, "allow", {"tool_role"}),
        ("memory_recall_fact", {"key": "k"}, "allow", {"tool_role"}),
        ("rag_query", {"query_text": "rules", "top_k": 10}, "allow", {"tool_role"}),
        (
            "http.request",
            {"method": "GET", "url": "https://example.com/x"},
            "allow",
            {"provenance_listed"},
        ),
        (
            "http.request",
            {"method": "GET", "url": "https://attacker.example/?d=1"},
            "ask",
            {"provenance_unknown"},
        ),
        (
            "http.request",
            {"method": "POST", "url": "https://example.com/x", "body": f"to={OUTSIDE}"},
            "ask",
            {"provenance_unknown"},
        ),
        ("resources/read", {"uri": "file:///a"}, "allow", {"tool_role"}),
        ("run_shell", {"command": "true"}, "ask", {"tool_unmapped"}),
        ("Email_Send_Email", _mail(INSIDE), "ask", {"tool_unmapped"}),
    ],
)
def test_the_default_policy_decides(default, tool, arguments, action, codes):
    """Action and the codes of the deciding rules, for one call in a fresh session."""
    verdict = _decide(default, tool, arguments)

    assert verdict.action.label == action
    assert {r.code for r in verdict.reasons if r.action is verdict.action} == codes
    assert verdict.errors == ()


def test_a_recall_before_an_internal_send_is_honest_work(default):
    """Memory-grounded mail to colleagues goes out, whatever the classifier says of the road."""
    verdict = _decide(default, "email_send_email", _mail(INSIDE), before=[Role.RECALL], score=0.99)
    assert verdict.action is Action.ALLOW


def test_an_external_send_without_a_score_is_an_error(default):
    """A model that did not run blocks, and the verdict says which rule missed it."""
    verdict = _decide(default, "email_send_email", _mail(OUTSIDE), score=None)
    assert (verdict.action, len(verdict.errors)) == (Action.BLOCK, 1)


@pytest.mark.parametrize("to", [INSIDE, OUTSIDE])
def test_no_reason_of_a_verdict_shows_an_argument(default, to):
    """Audit lines and refusals are built from reasons; addresses and texts stay out of them."""
    verdict = _decide(default, "email_send_email", _mail(to), before=[Role.RECALL], score=0.9)
    text = repr(verdict)
    assert to not in text
    assert "All is well" not in text


@pytest.mark.parametrize(
    ("tool", "arguments", "noticed"),
    [
        ("acme_send_message", {"to": OUTSIDE}, True),
        ("acme_send_message", {"to": INSIDE}, False),
        ("acme_send_message", {"text": "to nobody"}, True),
        ("memory_recall_fact", {"key": "k"}, False),
        ("anything_else", {"x": OUTSIDE}, True),
        ("anything_else", {"x": "nobody"}, False),
    ],
)
def test_observe_watches_and_blocks_nothing(observe, tool, arguments, noticed):
    """Every call passes; sends to the outside are recorded as what would be refused."""
    verdict = _decide(observe, tool, arguments, score=None)

    assert observe.mode is Mode.MONITOR
    assert verdict.enforced is Action.ALLOW
    assert verdict.would_have_blocked is noticed


def test_an_allowed_path_of_a_host_is_open_to_plain_requests(tmp_path):
    """The allowlist entry that the policy's comments suggest works, and only for its path."""
    text = (POLICIES / "default.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    allowed = 'allow: ["https://api.partner.example/v1/"]'
    path.write_text(text.replace("allow: []", allowed), encoding="utf-8")
    policy = load_policies([path])

    def actions(url):
        arguments = {"method": "POST", "url": url, "host": "api.partner.example:443", "body": ""}
        return _decide(policy, "http.request", arguments).action

    assert actions("https://api.partner.example:443/v1/items") is Action.ALLOW
    assert actions("https://api.partner.example:443/v2/items") is Action.ASK


def test_every_shipped_policy_is_valid():
    """Each loads by itself and enforces."""
    paths = [*builtin_policies().values()]
    assert len(paths) >= 2
    for path in paths:
        assert load_policies([path]).mode is Mode.ENFORCE or path.stem == "observe"


def test_the_office_policy_asks_about_actions_that_nobody_requested():
    """A service beside it is needed to try the rule; so the file is here."""
    from typer.testing import CliRunner

    from guard import cli

    described = Path(__file__).parent / "described"
    done = CliRunner().invoke(cli.app, ["policy", "test", str(described)])

    assert " 0 failed" in done.stdout
