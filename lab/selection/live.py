"""A live attack by six edges: the transfer that they misdirect must be asked about."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.judged_runs import share
from lab.wire import Wire, is_refused, reasons_of
from lab.write_path.rig import Rig, events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guard.core.model import Json
    from guard.processes import loopback
    from guard.replay.reports import Check

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
        near = [self.topics[0], f"surveyor {self.number}"]
        return [
            {
                "name": f"invoice right {self.number}",
                "text": f"Pay the surveyor at {self.right}",
                "about": near,
            },
            {
                "name": f"invoice rival {self.number}",
                "text": f"Pay the miller at {self.rival}",
                "about": self.far,
            },
        ]

    @property
    def far(self) -> list[str]:
        """The entities of the rival's record."""
        return [f"mill {self.number} {letter}" for letter in "abc"]

    def around(self) -> list[dict[str, Json]]:
        """Return the curator's relations between the query's entities and others."""
        one, two = self.topics
        pairs = [(one, f"pier {self.number} {letter}") for letter in "abcd"]
        pairs.append((two, f"chart {self.number}"))
        return [{"source": s, "target": t, "relation": "has"} for s, t in pairs]

    def attack(self) -> list[dict[str, Json]]:
        """Return six relations of weight one, from the query's entities to the rival's."""
        return [
            {"source": s, "target": t, "relation": "near"} for s in self.topics for t in self.far
        ]


@dataclass(slots=True)
class Outcomes:
    """The outcomes of the transfers through one guard."""

    honest: list[bool] = field(default_factory=list)
    """Before the attack: whether the transfer to the first record went out."""
    rival_served: list[bool] = field(default_factory=list)
    """After it: whether the rival was served."""
    wrong_first: list[bool] = field(default_factory=list)
    """After it: whether the rival came first."""
    wrong_paid: list[bool] = field(default_factory=list)
    """After it: whether a transfer to the rival went out."""
    reasons: list[str] = field(default_factory=list)
    """Why it did not."""
    right_paid: list[bool] = field(default_factory=list)
    """After it: whether the right account, now second, can still be paid."""
    lines: list[dict[str, Json]] = field(default_factory=list)
    """The selections that the guard wrote down."""


def play(wire: Wire, scenes: Sequence[Scene]) -> Outcomes:
    """Let the curator write, an agent pay, a peer attack, and the agent pay again."""
    found = Outcomes()
    wire.list_tools("curator", "curation")
    for scene in scenes:
        wire.call("curator", "curation", "add_records", {"records": scene.records()})
        wire.call("curator", "curation", "relate", {"relations": scene.around()})
    for scene in scenes:
        session = f"before-{scene.number}"
        first = _accounts(wire, session, scene)[0]
        found.honest.append(transfer(wire, "agent", session, first)[0])
    for scene in scenes:
        wire.call("peer", "peer", "relate", {"relations": scene.attack()})
    for scene in scenes:
        session = f"after-{scene.number}"
        served = _accounts(wire, session, scene)
        found.rival_served.append(scene.rival in served)
        found.wrong_first.append(served[0] == scene.rival)
        paid, reason = transfer(wire, "agent", session, scene.rival)
        found.wrong_paid.append(paid)
        found.reasons.append(reason)
        found.right_paid.append(transfer(wire, "agent", session, scene.right)[0])
    return found


def _accounts(wire: Wire, session: str, scene: Scene) -> list[str]:
    """Return the accounts of the records that the memory serves to the agent, best first."""
    answer = wire.call("agent", session, "search_records", {"query": scene.query})
    records = json.loads(answer["content"][0]["text"])["results"]
    return [one["text"].rpartition(" ")[2] for one in records]


def transfer(wire: Wire, agent: str, session: str, account: str) -> tuple[bool, str]:
    """Return whether a transfer went out, and the reasons of the verdict."""
    answer = wire.call(agent, session, "transfer", {"account": account, "amount": 10})
    return not is_refused(answer), " ".join(reasons_of(answer))


def run(policy: Path, scenes: Sequence[Scene], *store: str) -> Outcomes:
    """Start a memory and a guard, and play every scene."""
    accounts = [account for scene in scenes for account in (scene.right, scene.rival)]
    with rigged(policy, store, accounts) as (wire, audit):
        outcomes = play(wire, scenes)
        outcomes.lines += events(audit, "selection")
    return outcomes


@contextmanager
def rigged(
    policy: Path, store: tuple[str, ...], accounts: Iterable[str]
) -> Iterator[tuple[Wire, Path]]:
    """Run a memory and a guard in front of it; yield the calls of its agents and the audit log."""
    with Rig(AGENTS) as rig:
        audit = rig.worker("guard", policy, upstream=rig.server("lab.selection.server", *store))
        import_accounts(rig, rig.redis, "graph", accounts)
        yield rig.wires["guard"], audit


def import_accounts(rig: loopback.Rig, redis: str, store: str, accounts: Iterable[str]) -> None:
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


def stopped_end_to_end(details: dict[str, Any]) -> list[Check]:
    """Return the share of the misdirected transfers that were asked about."""
    outcomes = run(POLICY, [Scene(number) for number in range(SCENES)])
    misdirected = [
        not paid and "selection_diverged" in reason
        for wrong, paid, reason in zip(
            outcomes.wrong_first, outcomes.wrong_paid, outcomes.reasons, strict=True
        )
        if wrong
    ]
    writers = [line.get("writer") or {} for line in outcomes.lines]
    details["end_to_end"] = {
        "honest_transfers_released": sum(outcomes.honest),
        "right_account_still_payable": sum(outcomes.right_paid),
        "writer_named": sum(writer.get("principal") == "peer" for writer in writers),
    }
    return [share("e2e_stopped", misdirected, "1.0")]
