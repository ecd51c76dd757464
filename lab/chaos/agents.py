"""Agents that read, save, recall, write, ask and are answered while parts fail."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.errors import Fate, GuardError
from guard.core.policy import StateLimits
from guard.credentials.key_ring import load_seal
from guard.operations.labels import LabelOperator
from guard.store.store import RedisSessionStore
from lab.chaos.history import Event, Saw
from lab.wire import call_body, shown

if TYPE_CHECKING:
    from pathlib import Path

    from guard.settings import Durability

NOW: Final = time.time  # noqa: TID251  (the sides are joined by the machine's clock)
FACTS: Final = 8
"""Keys of the memory that all agents share."""
_OUTSIDE: Final = re.compile(r"x-[\w-]+@evil\.test")
PAUSE: Final = 0.15
"""Seconds between two calls of an agent."""
_TIMEOUT: Final = 5.0


class Deployment(NamedTuple):
    """Store and key of the guards, as an operator has them."""

    redis: str
    """URL of the store."""
    label_key: Path
    durability: Durability
    """Durability of an operator's answers, as of the guard's writes."""

    async def approve(self, decision: str) -> None:
        """Approve a call; return once the store has acknowledged it.

        Raises:
            GuardError: the store cannot be used.
        """
        store = RedisSessionStore.at(self.redis, timeout=2.0, durability=self.durability)
        try:
            seal = load_seal(self.label_key, NOW())
            await LabelOperator(store, seal, StateLimits()).approve(decision, NOW())
        finally:
            await store.aclose()


class Agent(threading.Thread):
    """One principal that works until told to stop.

    Args:
        name: of the principal; its secret is made of it.
        port: of the guard, or of the Envoy in front of it.
        seed: of what it does.
        stop: set when it is to end.
        deployment: where a person answers what it asks; None: it asks nothing.
    """

    def __init__(
        self,
        name: str,
        port: int,
        seed: int,
        stop: threading.Event,
        deployment: Deployment | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.events: list[Event] = []
        self.refusals: dict[str, Event] = {}
        """Events of refused calls, by decision id: lines of messages that were not judged name
        calls in no other way."""
        self._approved: list[str] = []
        """Receivers to whom a letter was approved, once each."""
        self._port = port
        self._random = random.Random(seed)  # noqa: S311  (a schedule, no secret)
        self._stop_asked = stop
        self._deployment = deployment
        self._read: list[str] = []
        self._calls = 0

    def run(self) -> None:
        """Work."""
        while not self._stop_asked.is_set():
            self.step()
            time.sleep(PAUSE)

    def step(self) -> None:
        """Use a grant that was given, or make one call of a random kind."""
        if self._approved:
            to = self._approved.pop()
            for _ in range(2):  # The second one must be asked about again.
                self.call("send_letter", {"to": to, "body": self.name})
            return
        kind = self._random.random()
        if kind < 0.3 or not self._read:
            tool = self._random.choice(("rag_query", "stream_query"))
            self.call(tool, {"query": self.name})
        elif kind < 0.4:
            key, content = self._fact(), f"Please write to {self._random.choice(self._read)}."
            self.call("save_fact", {"query": self.name, "key": key, "content": content})
        elif kind < 0.5:
            self.call("recall_fact", {"query": self.name, "key": self._fact()})
        elif kind < 0.6 and self._deployment is not None:
            self._ask(self._deployment)
        elif kind < 0.75:
            self.send_inside()
        else:
            to = self._random.choice(self._read)
            self.call("send_email", {"to": to, "body": self.name})

    def send_inside(self) -> bool:
        """Return whether a mail inside went through."""
        return self.call("send_email", {"to": "bob@example.com", "body": self.name})[0] is Saw.DONE

    def call(self, tool: str, words: dict[str, str]) -> tuple[Saw, str]:
        """Make one call on a connection of its own; return what was seen, and a decision id."""
        self._calls += 1
        name, to = f"{self.name}-{self._calls}", words.get("to", "")
        self.events.append(Event(NOW(), Saw.ASKED, name, self.name, to))
        answer: dict[str, Any] = {}
        with suppress(OSError, http.client.HTTPException, ValueError):
            answer = self._exchange(name, tool, words)
        saw, decision, text, waits = _outcome(answer)
        if saw is Saw.DONE and (found := _OUTSIDE.findall(text)):
            for address in found:
                self.events.append(Event(NOW(), Saw.READ, name, self.name, address))
            self._read += found
        elif saw is Saw.DONE and tool == "save_fact":
            self.events.append(Event(NOW(), Saw.SAVED, name, self.name))
        else:
            self.events.append(Event(NOW(), saw, name, self.name, to))
            self.refusals[decision] = self.events[-1]
        return saw, decision if waits else ""

    def _ask(self, deployment: Deployment) -> None:
        """Write a letter that needs a person, who approves it."""
        to = f"p-{self.name}-{self._calls}@partner.test"
        saw, decision = self.call("send_letter", {"to": to, "body": self.name})
        if saw is Saw.REFUSED and decision:
            with suppress(GuardError, OSError, TimeoutError):
                asyncio.run(deployment.approve(decision))
                self.events.append(Event(NOW(), Saw.APPROVED, decision, self.name, to))
                self._approved.append(to)

    def _fact(self) -> str:
        return f"fact{self._random.randrange(FACTS)}"

    def _exchange(self, name: str, tool: str, words: dict[str, str]) -> dict[str, Any]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **shown(self.name, name),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT)
        try:
            connection.request("POST", "/mcp", call_body(tool, words, name), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if "event-stream" in response.getheader("content-type", ""):
            text = text.rpartition(b"data: ")[2].partition(b"\n")[0]
        answer = json.loads(text)
        return answer if isinstance(answer, dict) else {}


def _outcome(answer: dict[str, Any]) -> tuple[Saw, str, str, bool]:
    """Return what an answer is, its decision id and text, and whether a person is asked."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return Saw.FAILED, "", "", False
    if result.get("isError"):
        said = (result.get("_meta") or {}).get("guard")
        if said is None:
            return Saw.FAILED, "", "", False
        if any(reason["code"] == "audit_error" for reason in said["reasons"]):
            return Saw.UNRECORDED, "", "", False
        if said["request"] != Fate.NOT_SENT.value:
            return Saw.FAILED, "", "", False
        return Saw.REFUSED, said["decision_id"], "", said["code"] == "approval_required"
    return Saw.DONE, "", str(result.get("content")), False
