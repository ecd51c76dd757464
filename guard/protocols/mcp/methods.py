"""The methods of MCP: what is a call, and what passes.  Pure: no I/O."""

from __future__ import annotations

from typing import Final

TOOL_CALL: Final = "tools/call"
CALL_METHODS: Final = frozenset(
    {"resources/read", "resources/subscribe", "prompts/get", "completion/complete"}
)
"""Methods that carry arguments to the server or content back: judged as calls of that name."""
PLAIN_METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/unsubscribe",
        "prompts/list",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/cancel",
        "tasks/result",
        "tasks/update",
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/message",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
        "notifications/elicitation/complete",
    }
)
"""Methods that pass: they name no destination and carry no payload of the agent's choosing."""
