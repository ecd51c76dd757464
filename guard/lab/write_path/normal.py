"""Normal writes of real text, each with the provenance that such a text has in use.

Observations of real conversations are written in three ways: as the agent's own inference, as text
that it has just read from somebody (to the class for that), and as what its user has just said
(after the agent has read something).  None of them should be refused.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.lab.write_path.rig import Agent, Rig

WAYS: Final = ("inferred", "read", "said")
AT_ONCE: Final = 20
"""Writes of one agent."""


def normal_writes(rig: Rig, texts: Sequence[str]) -> dict[str, dict[str, int]]:
    """Write texts in turn in each way, and return writes and refusals by way."""
    counts = {way: {"writes": 0, "refused": 0} for way in WAYS}
    for start in range(0, len(texts), AT_ONCE):
        way = WAYS[start // AT_ONCE % len(WAYS)]
        number = rig.used
        agent = rig.agent("s4")
        for offset, text in enumerate(texts[start : start + AT_ONCE]):
            key = f"normal-{start + offset}"
            if way != "inferred":
                _read(rig, agent, key, text)
            if way == "said":
                _say(rig, f"agent{number}", agent.session, text)
            target = "L4" if way == "read" else "L3"
            write = {"key": key, "content": text, "memory_class": target, "nonce": key}
            counts[way]["writes"] += 1
            counts[way]["refused"] += agent.call("memory_write", write).is_error
    return counts


def _read(rig: Rig, agent: Agent, name: str, text: str) -> None:
    rig.stores["protected"].add_document(name, f"Mail of the day: {text}")
    agent.call("fetch_document", {"document_id": name})


def _say(rig: Rig, principal: str, session: str, text: str) -> None:
    """Say a text to the agent, as its front end tells the guard."""
    body = json.dumps({"principal": principal, "session": session, "text": text}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{rig.admin_ports['s4']}/v1/prompts",
        body,
        {"content-type": "application/json", "authorization": f"Bearer {rig.front_end}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  (as above)
        answer.read()
