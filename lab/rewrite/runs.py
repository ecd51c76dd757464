"""Rewrites a recorded run consistently: the same calls about other people in other words.

A guard that was fitted to the strings of its development data does worse on a rewritten run; one
that decides by mechanism does as well.  Tool names, argument names, field names and internal
domains stay, as does everything that ground truth is about.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from guard.core.json_values import strings_in
from guard.provenance.result_documents import parsed
from lab.rewrite.pseudonyms import Pseudonyms, name_in, people_in
from lab.rewrite.wording import SHAPES, carried, filled_in, named, values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guard.core.model import Json
    from guard.replay.traces import Call, Run

_ABOUT_NAMES: Final = frozenset(
    {"channel", "name", "owner", "participants", "recipient", "recipients", "sender", "user"}
)
"""Fields and arguments that hold names."""
_NAME_LIMIT: Final = 32
_SHORT: Final = 2
"""Letters of a word that is no name."""


class Rewriter:
    """Rewrites runs.

    Args:
        seed: another one gives other names, wordings and shapes.
        kept: internal domains, which keep their names.
        shapes: names of the shapes that results may take.
    """

    def __init__(
        self, seed: str, kept: Sequence[str], shapes: Sequence[str] = tuple(SHAPES)
    ) -> None:
        self._seed = seed
        self._words = Pseudonyms(f"rewrite:{seed}", kept)
        self._shapes = [SHAPES[name] for name in shapes]

    def run(self, run: Run) -> Run:
        """Return the run under other names, in other words and shapes."""
        draw = random.Random(f"{self._seed}:{run.run_id}")  # noqa: S311  (a simulation)
        told = self._words.texts(_names_of(run))
        planted = {told(value) for value in _planted(run)}
        shape = draw.choice(self._shapes)

        def result_text(text: str) -> str:
            return carried(told(text), planted, draw)

        return run.model_copy(
            update={
                "prompts": tuple(
                    prompt.model_copy(update={"text": named(told(prompt.text), draw)})
                    for prompt in run.prompts
                ),
                "calls": tuple(
                    call.model_copy(
                        update={
                            "args": filled_in(_mapped(call.args, told), draw),
                            "result": _told_again(call.result, result_text, shape),
                        }
                    )
                    for call in run.calls
                ),
                "labels": _mapped(run.labels, told),
            }
        )

    def text(self, text: str) -> str:
        """Return a text that goes with the runs, such as a memory's contents."""
        return self._words.texts(())(text)


def _told_again(
    result: Any, told: Callable[[str], str], shape: Callable[[Json], Json]
) -> str | dict[str, Any] | list[Any] | None:
    document = parsed(result, every_format=True) if isinstance(result, str) else result
    if isinstance(document, str):
        return told(document)
    if document is None:
        return None
    made: Any = shape(_mapped(document, told))
    return made if isinstance(made, str | dict | list) else json.dumps(made)


def _mapped(value: Json, told: Callable[[str], str]) -> Any:
    """Return a value with every text in it rewritten; the names of its fields stay."""
    if isinstance(value, str):
        return told(value)
    if isinstance(value, dict):
        return {key: _mapped(inner, told) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, told) for inner in value]
    return value


def _names_of(run: Run) -> set[str]:
    """Return the names of people and channels that occur in a run."""
    texts = [prompt.text for prompt in run.prompts]
    names: set[str] = set()
    for call in run.calls:
        texts += list(strings_in(call.args))
        result: Any = call.result
        document = parsed(result, every_format=True) if isinstance(result, str) else result
        texts += list(strings_in(document))
        for value in (*_fields(call.args), *_fields(document)):
            names |= name_in(value) or _handle(value)
    return names | people_in(texts)


def _handle(value: str) -> set[str]:
    """Return a channel's or user's name that is one word and no address."""
    plain = value.strip().lstrip("#@")
    if not _SHORT < len(plain) <= _NAME_LIMIT or plain.isdigit() or values_in(plain):
        return set()
    return {plain} if plain.replace("_", "").replace("-", "").isalnum() else set()


def _fields(document: Json) -> Iterator[str]:
    """Yield the texts in fields about names, and those of a list that is nothing but names."""
    stack: list[tuple[bool, Json]] = [(isinstance(document, list), document)]
    while stack:
        about, item = stack.pop()
        if isinstance(item, str) and about:
            yield item
        elif isinstance(item, dict):
            stack.extend((key in _ABOUT_NAMES, inner) for key, inner in item.items())
        elif isinstance(item, list):
            stack.extend((about, inner) for inner in item)


def _planted(run: Run) -> set[str]:
    """Return the values that the attack is about and that the user does not name."""
    injected = set(run.labels.get("injected_calls", ()))
    attackers = [str(one) for one in run.labels.get("attacker_recipients", ())]
    texts = [text for call in run.calls if call.i in injected for text in _sent(call)]
    found = {value for text in (*attackers, *texts) for value in values_in(text)}
    return found - {value for prompt in run.prompts for value in values_in(prompt.text)}


def _sent(call: Call) -> Iterator[str]:
    return strings_in(call.args)
