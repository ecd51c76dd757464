"""The examples in the documents are real: policies load, commands parse, some of them run.

A title after the language of a block marks an example that needs something: ``title="fragment"``
is a part of a policy.  ``test_commands_with_a_server.py`` runs what ``needs a server``.
"""

import re
import sys
import tomllib

import pytest
import typer
from ruamel.yaml import YAML
from typer.testing import CliRunner

from guard import cli
from guard.cli.running import shipped_detectors
from guard.policy import load_policies
from guard.replay.described_calls import CallEntry, DescribedCall, judge
from tests.docs.documents import BLOCK, DOCUMENTS, ROOT, blocks, commands

RUNNABLE = ("guard policy check", "guard policy test", "guard policies", "guard version")
"""Beginnings of commands that need neither a server nor files of the reader."""


def every_title(language):
    """Return the titles that blocks of a language have."""
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    return {m["title"] or "" for text in texts for m in BLOCK.finditer(text) if m[2] == language}


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_policy_in_a_document_loads(text, tmp_path):
    """Whoever copies a policy from a document gets one without an error."""
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")

    assert load_policies((path,)).rules


@pytest.mark.parametrize("text", blocks("yaml", "fragment"))
def test_a_part_of_a_policy_loads_in_a_policy(text, tmp_path):
    """A part is valid with a version, a name and the rules and stores that it speaks of."""
    part = YAML(typ="safe").load(text)
    stores = sorted({t["store"] for t in part.get("tools", ()) if "store" in t})
    rules = [
        {"id": "ask-unknown", "type": "tool", "effect": "ask", "mapped": False},
        {"id": "ask-payments", "type": "tool", "effect": "ask", "tools": ["pay"]},
        {"id": "work", "type": "tool", "effect": "allow", "mapped": True},
    ]
    document = {"version": 1, "name": "part", **part, "rules": [*part.get("rules", ()), *rules]}
    if stores and "stores" not in document:
        document["propagation"] = {"events": 1000}
    mapped = {name for tool in document.get("tools", ()) for name in tool["match"]}
    named = [one["tool"] for key in ("established", "directories") for one in part.get(key, ())]
    for name in sorted({*named, "pay"} - mapped):
        tool = {"match": [name], "role": "send", "destinations": ["$.to"]}
        document.setdefault("tools", []).append(tool)
    path = tmp_path / "policy.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(document, file)

    assert load_policies((path,)).rules


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_settings_file_in_a_document_parses(text):
    """Whoever copies it gets no syntax error."""
    assert tomllib.loads(text)


def resolved(words):
    """Return the command that words name, and the options among them that it lacks."""
    command = typer.main.get_command(cli.app)
    for word in words[1:]:
        if word not in getattr(command, "commands", ()):
            break
        command = cli.loaded(command.commands[word])
    known = {"--help", *(option for p in command.params for option in p.opts)}
    named = {found[0] for word in words if (found := re.match(r"--[\w-]+", word))}
    return command, named - known


@pytest.mark.parametrize("text", blocks("console", *every_title("console")))
def test_commands_in_a_document_exist(text):
    """Every guard command and option in a document is one of the command line."""
    for line in commands(text):
        # After ` -- ` comes the command of somebody else.
        command, unknown = resolved(line[: line.index("--")] if "--" in line else line)
        assert not hasattr(command, "commands"), line
        assert unknown == set()


def test_commands_in_the_text_of_documents_exist():
    """A command in backticks is one of the command line as well."""
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    named = {one for text in texts for one in re.findall(r"`(guard [^`\n]+)`", text)}
    found = {one: resolved(one.split(" -- ")[0].split()) for one in named}

    wrong = [one for one, (command, unknown) in found.items() if unknown or command.name == "guard"]
    assert wrong == []


@pytest.mark.parametrize(
    "words",
    sorted({" ".join(words) for param in blocks("console") for words in commands(param.values[0])}),
)
def test_a_command_without_a_mark_runs(words, monkeypatch):
    """A block without a title needs nothing but a checkout."""
    if words == "guard demo":
        pytest.skip("tests/e2e/test_demo.py runs it")
    assert words.startswith(RUNNABLE), words
    monkeypatch.chdir(ROOT)

    done = CliRunner().invoke(cli.app, words.split()[1:])

    assert done.exit_code == 0, done.output


def test_a_policy_test_in_a_document_passes(tmp_path):
    """The example of a test file holds for the example of a policy on its page."""
    text = (ROOT / "docs" / "how-to" / "policies.md").read_text(encoding="utf-8")
    for name, title in (("policy", None), ("policy_test", "policy_test.yaml")):
        found = [m for m in BLOCK.finditer(text) if m["language"] == "yaml"]
        block = next(m["text"] for m in found if m["title"] == title)
        (tmp_path / f"{name}.yaml").write_text(block, encoding="utf-8")

    done = CliRunner().invoke(cli.app, ["policy", "test", str(tmp_path)])

    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "rung", "action"),
    [
        ({"to": "a@example.com", "body": "x"}, "", "allow"),
        ({"to": "partner@example.org"}, "", "allow"),
        ({"to": "a@elsewhere.test"}, "prompted", "allow"),
        ({"to": "a@elsewhere.test"}, "", "ask"),
        ({"to": "a@elsewhere.test"}, "tainted", "block"),
        ({"to": "a@example.com", "bcc": "b@elsewhere.test"}, "", "ask"),
        ({"body": "x"}, "", "block"),
        ({"to": "a@b@c.test"}, "", "block"),
    ],
)
def test_the_readme_policy_judges_what_the_readme_says(arguments, rung, action, tmp_path):
    """Its send follows the ladder; a read passes, and a tool without a mapping is asked about."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "policy.yaml"
    path.write_text(re.search(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1], "utf-8")
    policy, detectors = load_policies((path,)), shipped_detectors(None)

    def verdict(tool, rungs, arguments=arguments):
        call = CallEntry(tool=tool, arguments=arguments)
        described = DescribedCall(call=call, provenance=rungs)
        return judge(policy, detectors, described).verdict.action.label

    assert verdict("send_email", {arguments["to"]: rung} if rung else {}) == action
    assert verdict("send_email_v2", {}, {"text": "hello"}) == "ask"
    assert verdict("search_mail", {}, {"query": "invoice"}) == "allow"


def contributing(language):
    """Return the examples of CONTRIBUTING.md in a language."""
    found = blocks(language, *every_title(language))
    return [one.values[0] for one in found if one.id.startswith("CONTRIBUTING:")]


@pytest.fixture
def dropped_in(tmp_path, monkeypatch):
    """Put the rule type and the detector of CONTRIBUTING.md into their packages, for one test."""
    import guard.detectors
    import guard.policy.rules

    before = set(sys.modules)
    packages = (guard.policy.rules, guard.detectors)
    for package, name, text in zip(
        packages, ("weekday", "argument_count"), contributing("python"), strict=True
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    yield
    for module in set(sys.modules) - before:
        if module.startswith(tuple(f"{package.__name__}." for package in packages)):
            parent, _, name = module.rpartition(".")
            monkeypatch.delitem(sys.modules, module)
            monkeypatch.delattr(sys.modules[parent], name, raising=False)


@pytest.mark.usefixtures("dropped_in")
def test_the_first_changes_of_a_newcomer_work(tmp_path):
    """The profile loads beside a shipped policy, the rule judges, an expression reads the fact."""
    from guard.detectors import discover_detectors

    detector = next(one for one in discover_detectors() if one.name == "argument_count")
    profile = tmp_path / "acme-notes.yaml"
    profile.write_text(contributing("yaml")[0], encoding="utf-8")
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "version: 1\nname: mine\nrules:\n"
        "  - {id: monday, type: weekday, days: [0, 1, 2, 3, 4, 5, 6], effect: ask}\n"
        '  - {id: many, type: expression, when: "facts.arguments > 1", effect: block}\n',
        encoding="utf-8",
    )
    policy = load_policies((ROOT / "policies" / "default.yaml", profile, rules))

    def verdict(**arguments):
        call = CallEntry(tool="acme_search_notes", arguments=arguments)
        return judge(policy, (detector(),), DescribedCall(call=call)).verdict.action.label

    assert verdict(query="x") == "ask"
    assert verdict(query="x", page=2) == "block"
