"""A live attack by six edges: the transfer that they misdirect must be asked about."""

from __future__ import annotations

import json
import secrets as secrets_of
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from guard.processes.loopback import Rig
from guard.replay.reports import Check
from guard.store.embedded import EmbeddedRedis
from lab.judged_runs import wilson
from lab.wire import shown, write_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Json

POLICY: Final = Path(__file__).with_name("gate.yaml")
SCENES: Final = 40
AGENTS: Final = ("curator", "peer", "agent", "payer")


def iban(number: int) -> str:
    """Return an account of the United Kingdom with its check digits (ISO 13616)."""
    bank = f"WEST{123456 + number % 7:06}{98765432 - 9973 * number:08}"
    digits = "".join(str(int(character, 36)) for character in f"{bank}GB00")
    return f"GB{98 - int(digits) % 97:02}{bank}"


@dataclass(frozen=True, slots=True)
class Scene:
    """One question, the record that answers it, and the one that a peer wants to come first."""

    number: int

    @property
    def query(self) -> str:
        """Question of the agent to the memory."""
        return f"who is owed for {self.topics[0]} and {self.topics[1]}"

    @property
    def topics(self) -> tuple[str, str]:
        """The entities that the query names."""
        return f"harbour {self.number}", f"survey {self.number}"

    @property
    def right(self) -> str:
        """The account that the authenticated structure puts first."""
        return iban(2 * self.number)

    @property
    def rival(self) -> str:
        """The account that it does not."""
        return iban(2 * self.number + 1)

    def records(self) -> list[dict[str, Json]]:
        """Return the curator's records."""
        one = self.topics[0]
        far = [f"mill {self.number} {letter}" for letter in "abc"]
        return [
            {
                "name": f"invoice right {self.number}",
                "text": f"Pay the surveyor at {self.right}",
                "about": [one, f"surveyor {self.number}"],
            },
            {
                "name": f"invoice rival {self.number}",
                "text": f"Pay the miller at {self.rival}",
                "about": far,
            },
        ]

    def around(self) -> list[dict[str, Json]]:
        """Return the curator's relations between the query's entities and others."""
        one, two = self.topics
        pairs = [(one, f"pier {self.number} {letter}") for letter in "abcd"]
        pairs.append((two, f"chart {self.number}"))
        return [{"source": s, "target": t, "relation": "has"} for s, t in pairs]

    def attack(self) -> list[dict[str, Json]]:
        """Return six relations of weight one, from the query's entities to the rival's."""
        far = [f"mill {self.number} {letter}" for letter in "abc"]
        return [{"source": s, "target": t, "relation": "near"} for s in self.topics for t in far]


@dataclass(slots=True)
class Outcomes:
    """The outcomes of the transfers through one guard."""

    honest: list[bool] = field(default_factory=list)
    """Before the attack: whether the transfer to the first record went out."""
    wrong_first: list[bool] = field(default_factory=list)
    """After it: whether the rival came first."""
    wrong_paid: list[bool] = field(default_factory=list)
    """True, for each trial, if the transfer to it went out."""
    reasons: list[str] = field(default_factory=list)
    """Why it did not."""
    right_paid: list[bool] = field(default_factory=list)
    """After it: whether the right account, now second, can still be paid."""


class Wire:
    """Calls of agents through a guard, as MCP over HTTP.

    Args:
        port: the guard's.
        secrets: of the agents, by name.
    """

    def __init__(self, port: int, secrets: dict[str, str]) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False
        )
        self._secrets = secrets

    def call(self, agent: str, session: str, tool: str, arguments: Json) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self._ask(agent, session, "tools/call", {"name": tool, "arguments": arguments})

    def list_tools(self, agent: str, session: str) -> None:
        """List the tools: a store vouches at the server that listed its tools."""
        self._ask(agent, session, "tools/list", {})

    def _ask(self, agent: str, session: str, method: str, params: Json) -> dict[str, Any]:
        answer = self._client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={
                "accept": "application/json, text/event-stream",
                **shown(self._secrets[agent], session),
            },
        )
        found: dict[str, Any] = answer.json()["result"]
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def play(wire: Wire, scenes: list[Scene]) -> Outcomes:
    """Let the curator write, an agent pay, a peer attack, and the agent pay again."""
    found = Outcomes()
    wire.list_tools("curator", "curation")
    for scene in scenes:
        wire.call("curator", "curation", "add_records", {"records": scene.records()})
        wire.call("curator", "curation", "relate", {"relations": scene.around()})
    for scene in scenes:
        paid, _ = _pay(wire, f"before-{scene.number}", _recalled(wire, scene, "before")[0])
        found.honest.append(paid)
    for scene in scenes:
        wire.call("peer", "peer", "relate", {"relations": scene.attack()})
    for scene in scenes:
        served = _recalled(wire, scene, "after")
        found.wrong_first.append(served[0] == scene.rival)
        paid, reason = _pay(wire, f"after-{scene.number}", served[0])
        found.wrong_paid.append(paid)
        found.reasons.append(reason)
        found.right_paid.append(_pay(wire, f"after-{scene.number}", scene.right)[0])
    return found


def _recalled(wire: Wire, scene: Scene, when: str) -> list[str]:
    session = f"{when}-{scene.number}"
    answer = wire.call("agent", session, "search_records", {"query": scene.query})
    results = json.loads(answer["content"][0]["text"])["results"]
    return [one["text"].rpartition(" ")[2] for one in results]


def _pay(wire: Wire, session: str, account: str) -> tuple[bool, str]:
    return transfer(wire, "agent", session, account)


def transfer(wire: Wire, agent: str, session: str, account: str) -> tuple[bool, str]:
    """Return whether a transfer went out, and the reasons of the verdict."""
    answer = wire.call(agent, session, "transfer", {"account": account, "amount": 10})
    guard = answer.get("_meta", {}).get("guard", {})
    return not answer.get("isError"), json.dumps(guard.get("reasons", []))


@dataclass(frozen=True, slots=True)
class Played:
    """The transfers, and what the guard wrote down of the selections."""

    outcomes: Outcomes
    lines: tuple[dict[str, Json], ...]


def run(policy: Path, scenes: int = SCENES) -> Played:
    """Start the memory and a guard, and play every scene."""
    played = [Scene(number) for number in range(scenes)]
    accounts = [account for scene in played for account in (scene.right, scene.rival)]
    with rigged(policy, "lab.selection.server", accounts) as (wire, rig):
        outcomes = play(wire, played)
        lines = tuple(_selections(rig.audit))
    return Played(outcomes, lines)


@contextmanager
def rigged(
    policy: Path, module: str | tuple[str, ...], accounts: Iterable[str]
) -> Iterator[tuple[Wire, Rig]]:
    """Run a memory and a guard in front of it, and yield the calls of its agents."""
    secrets = {agent: f"{agent}-{secrets_of.token_hex(16)}" for agent in AGENTS}
    with Rig() as rig, EmbeddedRedis() as redis:
        credentials = write_credentials(rig.directory / "agents.toml", secrets)
        options = ("--redis", redis.url, "--credentials", str(credentials))
        words = (module,) if isinstance(module, str) else module
        port = rig.guard(policy, rig.server(*words), *options)
        import_accounts(rig, redis.url, "graph", accounts)
        wire = Wire(port, secrets)
        try:
            yield wire, rig
        finally:
            wire.close()


def import_accounts(rig: Rig, redis: str, store: str, accounts: Iterable[str]) -> None:
    """Label accounts as an operator does who knows them: only the selection can be wrong."""
    items = [
        {"store": store, "value": one, "label": "authenticated", "for": ["bank"]}
        for one in accounts
    ]
    file = rig.directory / "accounts.json"
    file.write_text(json.dumps(items), encoding="utf-8")
    key = str(rig.directory / "label.key")
    command = ["memory", "import", str(file), "--redis", redis, "--label-key", key]
    subprocess.run([sys.executable, "-m", "guard", *command], check=True, capture_output=True)  # noqa: S603


def _selections(audit: Path) -> Iterator[dict[str, Json]]:
    for line in audit.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        if document.get("event") == "selection":
            yield document


def stopped_end_to_end(details: dict[str, Any]) -> list[Check]:
    """Return the share of the misdirected transfers that were asked about."""
    played = run(POLICY)
    outcomes = played.outcomes
    misdirected = [
        not paid and "selection_diverged" in reason
        for wrong, paid, reason in zip(
            outcomes.wrong_first, outcomes.wrong_paid, outcomes.reasons, strict=True
        )
        if wrong
    ]
    writers = [line.get("writer") or {} for line in played.lines]
    details["end_to_end"] = {
        "scenes": len(outcomes.honest),
        "honest_transfers_released": sum(outcomes.honest),
        "rival_first_after_attack": sum(outcomes.wrong_first),
        "right_account_still_payable": sum(outcomes.right_paid),
        "writer_named": sum(writer.get("principal") == "peer" for writer in writers),
    }
    return [
        Check(
            id="e2e_stopped",
            value=sum(misdirected) / len(misdirected) if misdirected else None,
            unit="fraction",
            n=len(misdirected),
            interval=wilson(sum(misdirected), len(misdirected)) if misdirected else None,
            target="1.0",
            reason=None if misdirected else "the attack changed no first record",
        )
    ]
