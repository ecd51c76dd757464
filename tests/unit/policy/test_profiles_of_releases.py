"""Profiles over current releases: what a further argument or annotation changes, and what not."""

from __future__ import annotations

import pytest

from guard.policy import load_policies
from guard.policy.client_config import ConfiguredServer
from guard.policy.proposal import ListedTool, policy_text
from guard.policy.recognition import proposed, qualifies, shipped_profiles

TEXT = {"type": "string"}
READ = {"readOnlyHint": True}
ACCOUNT = {"USER_GOOGLE_EMAIL": "nora@corp.example"}
SEARCH = ListedTool(
    "search_gmail_messages", {"query": TEXT, "user_google_email": TEXT}, READ, "0" * 32
)


def workspace(tools, environment=ACCOUNT, package="workspace-mcp"):
    """Return the proposal for a server that its user starts."""
    server = ConfiguredServer(
        "google", command=("uvx", package), environment=environment, transport="stdio"
    )
    return proposed(server, "stdio:google", tools)


def test_an_account_must_be_the_configured_one(tmp_path):
    """The tool is mapped, and another account is asked about by a rule."""
    one = workspace([SEARCH])
    assert (one.mapped, one.dropped) == (1, {})
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text("p", "corp.example", [one]), encoding="utf-8")
    [rule] = [r for r in load_policies([path]).rules if r.id == "account-google"]
    assert (rule.equals, rule.negate) == ("nora@corp.example", True)


@pytest.mark.parametrize("environment", [{}, {"USER_GOOGLE_EMAIL": " "}])
def test_without_a_configured_account_the_tool_is_dropped(environment):
    """The reason names the variable; the count is not below 0."""
    one = workspace([SEARCH], environment)
    assert one.mapped == 0
    assert "USER_GOOGLE_EMAIL" in one.dropped["search_gmail_messages"] or one.dropped


@pytest.mark.parametrize(
    ("name", "properties", "annotations"),
    [
        ("get_page", {"webhook_url": TEXT}, READ),
        ("get_page", {"notify_email": TEXT}, READ),
        ("delete_page", {}, READ),
        ("list_and_send", {}, {}),
        ("get_page", {}, {"readOnlyHint": True, "destructiveHint": True}),
        ("get_page", {}, {"readOnlyHint": "true"}),
        ("get_page", {}, {"readOnlyHint": False}),
        ("update_page", {}, READ),
    ],
)
def test_an_annotation_alone_maps_no_tool_that_something_else_contradicts(
    name, properties, annotations
):
    """Each is asked about, with a reason."""
    tool = ListedTool(name, properties, annotations, "0" * 32)
    one = workspace([tool], {}, "mcp-server-git")
    assert one.mapped == 0
    assert one.dropped[name]


def test_an_annotation_maps_nothing_of_a_server_that_nobody_reviewed():
    """A server's own words lead to no mapping."""
    tool = ListedTool("get_page", {}, READ, "0" * 32)
    assert workspace([tool], {}, "mcp-server-nobody").mapped == 0
    assert workspace([tool], {}, "mcp-server-git").mapped == 1


def test_no_shipped_profile_accepts_a_switch_or_an_id():
    """Neither qualifies, whatever a profile says."""
    for name, content in shipped_profiles().items():
        for argument in content.recognised_by.accepts if content.recognised_by else ():
            assert qualifies(argument), (name, argument)
    for argument in (
        "share",
        "publish",
        "notify",
        "send_updates",
        "page_id",
        "channelId",
        "ids",
        "callback",
    ):
        assert not qualifies(argument)
    assert not qualifies("fast", {"type": "boolean"})
