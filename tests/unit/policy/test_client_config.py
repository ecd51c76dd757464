"""Configurations of MCP clients: every shape is read, and rewritten without losing a byte."""

import itertools
import json
import tomllib

import pytest

from guard.core.errors import GuardError
from guard.policy.client_config import Rewritten, read_client_config, rewritten_config

SECRET = "ghp_" + "0123456789abcdef"
COMMENTED = b"""{
  // ours, do not touch
  "theme": "dark", /* and this */
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "files"], "x-unknown": [1, 2,], "env": {"K": "v"}},
    "web": {"type": "http", "url": "http://h.test/mcp", "headers": {"Authorization": "KEY"},},
  },
}
""".replace(b"KEY", SECRET.encode())
CODEX = b"""[mcp_servers.web]
url = "http://h.test/mcp"
"""
WRAPPER = ("guard", "stdio", "--name", "files", "--", "npx", "-y", "files")


@pytest.mark.parametrize(
    "text",
    [
        b'{"mcpServers": {"a": {"url": "http://h/mcp", "headers": {"x": "1"}}}}',
        b'{"servers": {"a": {"type": "http", "url": "http://h/mcp", "headers": {"x": "1"}}}}',
        b'{"mcp": {"servers": {"a": {"url": "http://h/mcp", "headers": {"x": "1"}}}}}',
        b'{"mcpServers": {"a": {"httpUrl": "http://h/mcp", "headers": {"x": "1"}}}}',
        b'{"projects": {"/p": {"mcpServers":{"a": {"url": "http://h/mcp", "headers":{"x":"1"}}}}}}',
        b'[mcp_servers.a]\nurl = "http://h/mcp"\nhttp_headers = { "x" = "1" }\n',
    ],
)
def test_the_shapes_of_the_clients_are_read(text):
    """Claude Desktop and Cursor, VS Code twice, Gemini CLI, Claude Code by project, Codex."""
    (server,) = read_client_config(text)

    assert (server.name, server.url, server.transport) == ("a", "http://h/mcp", "http")
    assert server.headers == {"x": "1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"other": 1}', "neither `mcpServers` nor `servers`"),
        (b'{"mcpServers": {"a": 1}}', "is not an object"),
        (b'{"mcpServers": {"a": {}}}', "neither a `url` nor a `command`"),
        (b'{"mcpServers": {"a": {}}, "mcpServers": {}}', "not JSON: a member is there twice"),
        (b'{"mcpServers": {"a": {"url": "http://h/"} "b": 1}}', "not JSON at line 1"),
        (b'{\n"a": 1\n', "not JSON at line 3"),
        (b"plain words", "neither JSON nor TOML"),
        (b"\xff", "not UTF-8"),
        (b"[" * 200, "neither JSON nor TOML"),
        (b'{"a": ' + b"[" * 200, "not JSON"),
    ],
)
def test_what_is_no_configuration_is_said(text, words):
    """With the line, where there is one."""
    with pytest.raises(GuardError) as caught:
        read_client_config(text)

    assert words in str(caught.value)


def test_only_the_values_that_change_are_changed():
    """Comments, unknown keys, trailing commas and secrets stay where and as they are."""
    changes = [
        Rewritten(("mcpServers", "files"), command=WRAPPER),
        Rewritten(("mcpServers", "web"), url="http://127.0.0.1:9001/web"),
    ]
    after = rewritten_config(COMMENTED, changes).decode()
    expected = COMMENTED.decode()
    expected = expected.replace('"npx"', '"guard"', 1)
    expected = expected.replace('["-y", "files"]', json.dumps(list(WRAPPER[1:])))
    expected = expected.replace("http://h.test/mcp", "http://127.0.0.1:9001/web")

    assert after == expected
    assert after.count(SECRET) == 1


def test_codex_sends_no_websockets():
    """A WebSocket is refused with 426, since its messages cannot be judged."""
    provider = b'\n[model_providers.own]\nname = "own"\nbase_url = "http://127.0.0.1:9002/v1"\n'
    change = Rewritten(("mcp_servers", "web"), url="http://127.0.0.1:9001/web")
    values = tomllib.loads(rewritten_config(CODEX + provider, [change]).decode())

    assert values["model_providers"]["own"]["supports_websockets"] is False
    assert "model_providers" not in tomllib.loads(rewritten_config(CODEX, [change]).decode())


def test_whatever_a_value_holds_is_read_as_a_json_reader_reads_it():
    """A generator of documents, with comments strewn between their tokens."""
    texts = ["", "// x", '"', "\\", "/* y */", "ü", "\t", "}", "\u2028"]
    for first, second, blank in itertools.product(texts, texts, ["", " // c\n", '/* {" */']):
        entry = {"command": "run", "args": [first, second], "env": {second or "k": first}}
        plain = json.dumps({"mcpServers": {first or "a": entry}})
        strewn = plain.replace("{", "{" + blank).replace("[", "[" + blank) if blank else plain
        if "{" in first + second or "[" in first + second:
            continue
        (server,) = read_client_config(strewn.encode())

        assert (server.name, server.command) == (first or "a", ("run", first, second))
