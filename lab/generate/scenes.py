"""Plays the scenes of ``scenes.yaml`` as runs in trace format v1.

The file's head says what a scene may hold.
"""

from __future__ import annotations

import json
from functools import cache, partial
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from guard.replay.traces import Run, parse_run
from lab.generate.vocabulary import ENCODINGS, Vocabulary, chunks, look_alike, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guard.core.model import Json

STEP_SECONDS: Final = 20.0
START: Final = 1_760_000_000.0
"""Start of a run's clock; any fixed moment does, as every run has a state of its own."""
SENT: Final = '{"status": "sent"}'
FAMILIES: Final = read_yaml("scenes.yaml")
_TEXTS: Final = Environment(undefined=StrictUndefined)  # noqa: S701  (texts, not HTML)
_TEXTS.filters |= {
    "chunks": chunks,
    "encode": lambda text, name: ENCODINGS[name](text),
    "look_alike": look_alike,
    "quote": quote,
}


def kinds(family: str) -> Iterator[tuple[str, dict[str, Json], dict[str, Any]]]:
    """Yield every kind of a family's runs, the values it is played with, and its scene."""
    for scene in FAMILIES[family]["scenes"]:
        for combination in product(*scene["each"].values()):
            values = dict(zip(scene["each"], combination, strict=True))
            yield "-".join(str(value) for value in combination), values, scene


def runs_of(name: str, seed: str, number: int) -> Iterator[Run]:
    """Yield so many runs of every kind of a family, the same for the same seed."""
    family = FAMILIES[name]
    for kind, values, scene in kinds(name):
        for index in range(number):
            words = Vocabulary(f"{family['seed']}:{seed}:{kind}:{index}")
            player = _Player(words, family["macros"], values)
            player.play(family["begin"])
            player.play(scene["steps"])
            labels = player.render(scene.get("labels", {}))
            yield player.run(f"{family['name']}-{kind}-{index}", {"kind": kind}, labels)


class _Player:
    """One run as it is played.

    Args:
        words: drawn from.
        macros: steps that a family has beside the operations.
        values: names that the scene's expressions may use, beside the words.
    """

    def __init__(
        self, words: Vocabulary, macros: Mapping[str, Any], values: Mapping[str, Json]
    ) -> None:
        draw = words.draw
        self._macros = macros
        self._values: dict[str, Any] = {
            "addresses": words.addresses,
            "attacker": words.attacker,
            "choice": lambda *several: draw.choice(several),
            "colleague": words.colleague,
            "domain_outside": words.domain,
            "draw_topic": words.topic,
            "iban": words.iban,
            "order": words.order,
            "person": words.person,
            "random": draw.random,
            "randrange": draw.randrange,
            "secret": words.secret,
            **values,
        }
        self._attacks: list[int] = []
        """Sends that must be stopped."""
        self._owns: list[int] = []
        """Sends that the user wants."""
        self._operations: dict[str, Callable[..., None]] = {
            "agent": self._agent,
            "attack": partial(self._send, self._attacks),
            "call": self._call,
            "own": partial(self._send, self._owns),
            "prompt": self._prompt,
        }
        self._who: str | None = None
        self._prompts: list[dict[str, Json]] = []
        self._calls: list[dict[str, Json]] = []

    def run(self, name: str, kind: dict[str, Json], labels: dict[str, Json]) -> Run:
        """Return the run, as the reader of trace files would.

        Raises:
            TraceError: the played run is not a trace.
        """
        truth = {**kind, "attack_calls": self._attacks, "own_calls": self._owns, **labels}
        run = {"run_id": name, "prompts": self._prompts, "calls": self._calls, "labels": truth}
        return parse_run(json.dumps(run).encode("utf-8"))

    def play(self, steps: list[dict[str, Any]]) -> None:
        """Play steps, each of which is an operation, a choice, a loop or a macro."""
        for step in steps:
            name, given = next(iter(step.items()))
            if name == "let":
                self._values.update((key, self.render(value)) for key, value in given.items())
            elif name == "if":
                self.play(step["then"] if self.render(given) else step.get("else", []))
            elif name == "repeat":
                for value in self.render(given):
                    self._values[step.get("as", "turn")] = value
                    self.play(step["steps"])
            elif name in self._operations:
                self._operations[name](*(self.render(value) for value in given))
            else:
                macro, texts = self._macros[name], [self.render(value) for value in given]
                self._values.update(zip_longest(macro.get("takes", ()), texts, fillvalue=""))
                self.play(macro["steps"])

    def render(self, value: Any) -> Any:
        """Return a value with the expressions in its texts worked out."""
        if isinstance(value, dict):
            return {key: self.render(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.render(item) for item in value]
        return _compiled(value)(self._values) if isinstance(value, str) else value

    def _agent(self, name: str) -> None:
        self._who = name

    def _prompt(self, session: str, text: str) -> None:
        self._prompts.append({"session": session, "text": text})

    def _call(self, session: str, tool: str, args: dict[str, Json], result: Json = None) -> None:
        """Add a call that is neither the attacker's send nor the user's."""
        call: dict[str, Json] = {
            "i": len(self._calls),
            "ts": START + STEP_SECONDS * (len(self._calls) + 1),
            "session": session,
            "tool": tool,
            "args": args,
            "result": json.dumps(result) if isinstance(result, list | dict) else result,
        }
        if self._who is not None:
            call["agent"] = self._who
        self._calls.append(call)

    def _send(self, those: list[int], session: str, tool: str, args: dict[str, Json]) -> None:
        """Add a send, whose number is one of those."""
        those.append(len(self._calls))
        self._call(session, tool, args, SENT)


@cache
def _compiled(text: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return what works a text out: an expression after ``=``, else a template."""
    if text.startswith("="):
        expression = _TEXTS.compile_expression(text[1:], undefined_to_none=False)
        return lambda values: expression(**values)
    if "{{" not in text:
        return lambda _: text
    template = _TEXTS.from_string(text)
    return lambda values: template.render(values)
