"""``guard memory import | list | show | trace | structure | accept-loss`` on a real Redis."""

import json

import pytest

GRAPH = ("--store", "graph")
LINES = [
    {"change": "node", "one": "right", "item": True},
    {"change": "node", "one": "rival", "item": True},
    {"change": "edge", "one": "harbour", "two": "right", "relation": "about", "weight": 3},
    {"change": "edge", "one": "harbour", "two": "mill"},
    {"change": "edge", "one": "mill", "two": "rival"},
]


@pytest.fixture
def written(tmp_path):
    """Return what writes a file."""

    def write(text):
        path = tmp_path / "given.json"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_imported_items_can_be_listed_shown_and_traced(run, written):
    """By fingerprint, by text, and as a tree; never the text of what is stored."""
    items = [{"store": "facts", "value": "pat@partner.test", "label": "authenticated"}]

    assert run("memory", "import", written(json.dumps(items))).exit_code == 0
    listed = run("memory", "list").stdout
    assert ("authenticated" in listed, "partner" in listed) == (True, False)
    assert "imported" in run("memory", "show", "pat@partner.test").stdout
    assert "first imported" in run("memory", "trace", "pat@partner.test").stdout
    assert "no record" in run("memory", "trace", "x@y.test").stdout


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"store": "s"}]', '[{"store": "s", "value": "v", "label": "great"}]'],
)
def test_a_list_that_cannot_be_read_exits_with_3(run, written, text):
    """Nothing of it is imported."""
    assert run("memory", "import", written(text)).exit_code == 3


def test_structure_that_is_imported_is_exported_with_its_label(run, written):
    """Every change comes back, in order, and can be imported again."""
    path = written("\n".join(map(json.dumps, LINES)))
    who = ("--label", "advisory", "--principal", "curator")
    done = run("memory", "structure", "import", path, *who, *GRAPH)
    assert done.exit_code == 0, done.output
    exported = run("memory", "structure", "export", *GRAPH).stdout.splitlines()
    found = [json.loads(line) for line in exported if line.startswith("{")]
    assert [one["change"] for one in found] == [line["change"] for line in LINES]
    assert {(one["label"], one["principal"]) for one in found} == {("advisory", "curator")}
    assert found[2]["weight"] == 3


@pytest.mark.parametrize("line", ['{"change": "edge"}', '{"change": "paint", "one": "a"}', "[]"])
def test_a_line_that_is_no_change_is_named(run, written, line):
    """And nothing is imported."""
    assert run("memory", "structure", "import", written(line), *GRAPH).exit_code == 3
    assert run("memory", "structure", "export", *GRAPH).stdout.strip() == ""


@pytest.mark.parametrize(
    ("options", "code"), [(("--reason", " "), 3), (("--reason", "why"), 3), ((), 2)]
)
def test_a_loss_is_not_accepted_without_reason_and_record(run, own_server, options, code):
    """Nothing is changed before the line is written."""
    done = run("memory", "accept-loss", *options, server=own_server, tenant=False)
    assert done.exit_code == code
