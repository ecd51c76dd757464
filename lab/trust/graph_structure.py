"""Class: a policy that counts everybody's structure of a graph memory.

Six edges of a peer put a wrong account first.  A selection protects only where the policy says
whose structure counts, so a policy that counts every agent's must not load.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from guard.core.errors import PolicyError
from guard.core.model import Integrity
from guard.policy import lint, load_policies
from guard.provenance.imports import ImportedItem
from lab.selection.live import POLICY, Scene
from lab.selection.server import GraphMemory
from lab.trust.attacks import AttackClass, Attempt, Switch
from lab.trust.harness import MCP_PATH, TOOLS, Answer, tool_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from guard.core.model import Json
    from guard.protocols.http.message import HttpRequest
    from lab.trust.attacks import Play
    from lab.trust.harness import Agent, World

WHO: Final = "{principals: [curator], label: advisory}"
COUNTED: Final = (
    "{label: advisory}",
    "{label: untrusted}",
    "{principals: [], label: advisory}",
    "{sources: [model_inference], label: advisory}",
    "{sources: [user_input, model_inference], label: advisory}",
    "{sources: [model_inference, tool_result], label: advisory}",
    "{sources: [model_inference, tool_result], label: untrusted}",
)
"""Conditions that the structure of any agent meets."""
DIVERGED: Final = ("unknown", "ask", "annotate", "[ask, annotate]")
SCENES: Final = 6


class GraphStructure(AttackClass):
    """A transfer goes to the account that a peer's edges have put first."""

    id: ClassVar[str] = "graph_structure"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch(
            "whose structure counts is named",
            lambda p: p.set(lint, "_open_structure", lambda _files: ()),
        ),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts: those of a policy that names its curator as well."""
        scenes = [Scene(number) for number in rng.sample(range(1000), SCENES)]
        for scene, counted, diverged in itertools.product(scenes, (*COUNTED, WHO), DIVERGED):
            text = POLICY.read_text(encoding="utf-8")
            text = text.replace(WHO, f"{counted}\n      on_divergence: {diverged}")
            name = f"scene {scene.number}: {counted}, {diverged}"
            yield Attempt(name, _misdirected(scene, text))


def _misdirected(scene: Scene, policy: str) -> Play:
    async def play(world: World) -> bool:
        try:
            world.parts.guard.swap_policy(_loaded(policy))
        except PolicyError:
            return False
        memory = GraphMemory()
        for tool in ("add_records", "relate", "search_records", "transfer"):
            world.list_tool(TOOLS, MCP_PATH, tool)
        world.serve(TOOLS, lambda request: _answer(memory, request))
        accounts = [
            ImportedItem("graph", one, Integrity.AUTHENTICATED, ("bank",))
            for one in (scene.right, scene.rival)
        ]
        await world.operator.import_items(accounts, world.clock.now())
        curator, peer, agent = (world.agent(name, name) for name in ("carol", "mallory", "alice"))
        await curator.call("add_records", {"records": scene.records()})
        await curator.call("relate", {"relations": scene.around()})
        await peer.call("relate", {"relations": scene.attack()})
        return await _paid(agent, scene)

    return play


async def _paid(agent: Agent, scene: Scene) -> bool:
    """Let the agent pay the account of the first record, and return whether the rival was paid."""
    found = await agent.call("search_records", {"query": scene.query})
    text = json.loads(found.reply)["result"]["content"][0]["text"]
    first = json.loads(text)["results"][0]["text"].rpartition(" ")[2]
    if first != scene.rival:
        msg = "the attack changes no first record"
        raise ValueError(msg)
    return (await agent.call("transfer", {"account": first, "amount": 10})).forwarded


def _loaded(policy: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="guard-trust-") as place:
        path = Path(place) / "policy.yaml"
        path.write_text(policy.replace("curator", "carol"), encoding="utf-8")
        return load_policies([path])


def _answer(memory: GraphMemory, request: HttpRequest) -> Answer:
    """Answer as the memory's server does."""
    message = json.loads(request.body)
    arguments: dict[str, Any] = message["params"]["arguments"]
    result = tool_result(_done(memory, message["params"]["name"], arguments))
    return Answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


def _done(memory: GraphMemory, tool: str, arguments: dict[str, Any]) -> Json:
    for record in arguments.get("records", ()):
        memory.node(record["name"])
        memory.records[record["name"]] = record["text"]
        for entity in record["about"]:
            memory.join(record["name"], entity)
    for relation in arguments.get("relations", ()):
        memory.join(relation["source"], relation["target"])
    if tool != "search_records":
        return "done"
    found = memory.search(arguments["query"], 5)
    return {"results": [{"record": name, "text": memory.records[name]} for name in found]}
