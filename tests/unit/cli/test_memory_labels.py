"""``guard approvals grant``, ``guard memory import | list | show | trace``, a real Redis."""

import json

import pytest
from typer.testing import CliRunner

from guard import cli


@pytest.fixture
def run(redis_server, tmp_path):
    """Return a function that runs a command against the test's Redis and key."""
    key = tmp_path / "label.key"

    def call(*arguments):
        options = ["--redis", redis_server.url, "--label-key", str(key)]
        return CliRunner().invoke(cli.app, [*map(str, arguments), *options])

    return call


@pytest.fixture
def tenant(redis_namespace):
    """Return a tenant of one's own: the commands use the guard's namespace."""
    return redis_namespace


def test_imported_items_can_be_listed_shown_and_traced(run, tmp_path, tenant):
    """By fingerprint, by text, and as a tree; never the text of what is stored."""
    path = tmp_path / "contacts.json"
    items = [{"store": "facts", "value": "pat@partner.test", "label": "authenticated"}]
    path.write_text(json.dumps(items), encoding="utf-8")

    assert run("memory", "import", path, "--tenant", tenant).exit_code == 0
    listed = run("memory", "list", "--tenant", tenant)
    shown = run("memory", "show", "pat@partner.test", "--tenant", tenant)
    traced = run("memory", "trace", "pat@partner.test", "--tenant", tenant)

    assert "authenticated" in listed.stdout
    assert "partner" not in listed.stdout
    assert "imported" in shown.stdout
    assert "first imported" in traced.stdout
    nothing = run("memory", "trace", "x@y.test", "--tenant", tenant)
    assert "no record" in nothing.stdout


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"store": "s"}]', '[{"store": "s", "value": "v", "label": "great"}]'],
)
def test_a_list_that_cannot_be_read_exits_with_3(run, tmp_path, text):
    """Nothing of it is imported."""
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    assert run("memory", "import", path).exit_code == 3
