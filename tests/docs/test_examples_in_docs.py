"""The examples in the documents are real: policies load, console commands parse."""

import re
from pathlib import Path

import pytest

from guard.policy import load_policies
from guard.replay.described_calls import CallEntry, DescribedCall, judge

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language):
    """Return the fenced blocks of a language, each with its document and position."""
    found = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(pytest.param(match[1], id=f"{path.name}:{line}"))
    return found


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_policy_in_a_document_loads(text, tmp_path):
    """Whoever copies a policy from a document gets one without an error."""
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")

    assert load_policies((path,)).rules


@pytest.mark.parametrize("text", blocks("console"))
def test_options_in_a_document_exist(text):
    """Every option of a guard command in a document is one that the command has."""
    import typer

    from guard import cli

    root = typer.main.get_command(cli.app)
    for line in text.replace("\\\n", " ").splitlines():
        # After ` -- ` comes the command of somebody else.
        words = line.split("#")[0].split(" -- ")[0].split()
        if words[:1] != ["guard"]:
            continue
        command = root
        for word in words[1:]:
            if word not in getattr(command, "commands", ()):
                break
            command = command.commands[word]
        known = {option for p in command.params for option in p.opts}
        assert {word for word in words if word.startswith("--")} - known == set()


@pytest.mark.parametrize(
    ("tool", "arguments", "rungs", "action"),
    [
        pytest.param(
            "send_email", {"to": "a@example.com", "body": "x"}, {}, "allow", id="internal"
        ),
        pytest.param("send_email", {"to": "partner@example.org"}, {}, "allow", id="on the list"),
        pytest.param("send_email", {"to": "a@elsewhere.test"}, {}, "ask", id="stranger"),
        pytest.param(
            "send_email",
            {"to": "a@elsewhere.test"},
            {"a@elsewhere.test": "tainted"},
            "block",
            id="stranger out of untrusted text",
        ),
        pytest.param(
            "send_email",
            {"to": "a@elsewhere.test"},
            {"a@elsewhere.test": "prompted"},
            "allow",
            id="stranger whom the user named",
        ),
        pytest.param(
            "send_email",
            {"to": "a@example.com", "bcc": "b@elsewhere.test"},
            {},
            "ask",
            id="stranger in an undeclared argument",
        ),
        pytest.param(
            "send_email",
            {"to": "a@example.com", "options": {"copy": ["b@elsewhere.test"]}},
            {},
            "ask",
            id="stranger deep in an undeclared argument",
        ),
        pytest.param("send_email", {"body": "x"}, {}, "block", id="no destination"),
        pytest.param("send_email", {"to": "a@b@c.test"}, {}, "block", id="malformed destination"),
        pytest.param("memory_search", {"query": "x"}, {}, "allow", id="recall"),
        pytest.param("send_email_v2", {"to": "a@elsewhere.test"}, {}, "block", id="unmapped tool"),
    ],
)
def test_the_readme_policy_judges_what_the_readme_says(tool, arguments, rungs, action, tmp_path):
    """What the README says of its policy is what the policy does."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "policy.yaml"
    path.write_text(
        re.search(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1], encoding="utf-8"
    )
    described = DescribedCall(call=CallEntry(tool=tool, arguments=arguments), provenance=rungs)

    judged = judge(load_policies((path,)), (), described)

    assert action == judged.verdict.action.label
