"""``guard init`` run a second time: what the policy has stays, and a name is not enough."""

import pytest

from guard.cli.init import _add, _write
from guard.core.errors import GuardError
from guard.policy import load_policies
from guard.policy.proposal import ListedTool, ProposedServer


def server(name, started, *tools):
    """Return a proposed server that is started by a command."""
    listed = tuple(ListedTool(tool, {}, digest="d" * 32) for tool in tools)
    return ProposedServer(name, f"stdio:{name}", started, pinned=listed)


@pytest.fixture
def files(tmp_path):
    """Return a policy with one server, and its tests."""
    output, tests = tmp_path / "policy.yaml", tmp_path / "policy_test.yaml"
    _write(
        [server("files", "npx files-mcp", "read")], output, tests, "x.test", asks=True, hooks=False
    )
    return output, tests


def test_a_server_of_a_known_name_that_starts_something_else_is_refused(files):
    """Its tools would have the profile and the pins of the first one."""
    before = files[0].read_text("utf-8")

    with pytest.raises(GuardError, match="another server"):
        _add([server("files", "npx evil-mcp", "read")], *files)
    assert files[0].read_text("utf-8") == before


def test_only_new_servers_are_added(files):
    """What the author changed of a server that stays is not put back."""
    text = files[0].read_text("utf-8").replace('"read"', '"list"')
    files[0].write_text(text, "utf-8")

    _add(
        [server("files", "npx files-mcp", "read"), server("notes", "npx notes-mcp", "add")], *files
    )

    pins = {one.name: dict(one.pins) for one in load_policies([files[0]]).servers}
    assert pins == {"files": {"list": "d" * 32}, "notes": {"add": "d" * 32}}
