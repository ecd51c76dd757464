"""Attack classes written as data: ``plots/*.yaml`` has one file per class, played by one player.

A plot has a ``name``, a ``policy`` and ``steps``, all of them templates, and what they vary:
``each`` (every combination), ``sample`` (that many of them) and ``draw`` (one at random).
``$x`` is a value, ``${x}`` its text and ``${x|coding}`` its text in a coding; a value may be a
template itself.
"""

from __future__ import annotations

import base64
import codecs
import html
import json
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from ruamel.yaml import YAML

from guard.core.model import UserPrompt
from lab.trust.attacks import Attempt, Play, Step, acting
from lab.trust.harness import OTHER, TOOLS, Answer, Upstream, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from guard.protocols.http.message import HttpRequest

_PATH: Final = r"[a-z_][a-z0-9_]*(?:\.[a-z0-9_]+)*"
_WHOLE: Final = re.compile(rf"\$({_PATH})")
_PART: Final = re.compile(rf"\$\{{({_PATH})((?:\|[a-z0-9_]+)*)\}}")
DIRECTORY: Final = Path(__file__).with_name("plots")
CODINGS: Final[Mapping[str, Callable[..., str]]] = {
    "base16": lambda text: text.encode().hex(),
    "base64": lambda text, charset="utf-8": base64.b64encode(text.encode(charset)).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "every": lambda text, form: "".join(form.format(ord(sign)) for sign in text),
    "html": html.escape,
    "json": json.dumps,
    "lower": str.lower,
    "numbers": lambda text, form: " ".join(form.format(number) for number in range(int(text))),
    "object": lambda text, name: json.dumps({name: text}),
    "percent": partial(quote, safe=""),
    "put": lambda text, frame: frame.format(text),
    "replace": str.replace,
    "reverse": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "signs": lambda text, form: "".join(
        sign if sign.isalnum() else form.format(ord(sign)) for sign in text
    ),
    "sub": lambda text, pattern, by: re.sub(pattern, by, text),
    "title": str.title,
    "upper": str.upper,
    "wide": lambda text: "".join(chr(ord(c) + 0xFEE0) if c > " " else c for c in text),
}
"""Codings by name; some take arguments."""
WORDS: Final = {"tools": TOOLS, "other": OTHER}
"""Words of every book."""


def coded(text: str, coding: Sequence[str | Sequence[str]]) -> str:
    """Return a text in a coding, which is a list of names or of names with their arguments."""
    for step in coding:
        name, *given = [step] if isinstance(step, str) else step
        text = CODINGS[name](text, *given)
    return text


def looked_up(path: str, scope: Mapping[str, Any]) -> Any:
    """Return what stands at a path, as it is written.

    Raises:
        KeyError: nothing stands there.
    """
    value: Any = scope
    for name in path.split("."):
        value = written(value, scope)
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def written(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return what a reference stands for, without filling it."""
    while isinstance(value, str) and (whole := _WHOLE.fullmatch(value)):
        value = looked_up(whole[1], scope)
    return value


def filled(template: Any, scope: Mapping[str, Any]) -> Any:
    """Return a template with its values."""
    template = written(template, scope)
    if isinstance(template, str):
        return _PART.sub(lambda part: _text(part, scope), template)
    if isinstance(template, list):
        return [filled(item, scope) for item in template]
    if isinstance(template, dict):
        return {filled(key, scope): filled(value, scope) for key, value in template.items()}
    return template


def _text(part: re.Match[str], scope: Mapping[str, Any]) -> str:
    value = filled(f"${part[1]}", scope)
    text = value if isinstance(value, str) else json.dumps(value)
    for name in part[2].split("|")[1:]:
        text = coded(text, [name] if name in CODINGS else filled(f"${name}", scope))
    return text


def _items(values: Any, scope: Mapping[str, Any]) -> list[Any]:
    values = written(values, scope)
    if not isinstance(values, dict):
        return list(values)
    named = {key: written(value, scope) for key, value in values.items()}
    return [
        {**(value if isinstance(value, dict) else {}), "key": key, "value": value}
        for key, value in named.items()
    ]


def _scopes(
    plot: Mapping[str, Any], book: Mapping[str, Any], rng: Random
) -> Iterator[dict[str, Any]]:
    """Yield the words of each attempt; a sample is taken for each value of the first variable."""
    base = {**book, **WORDS, **plot.get("let", {})}
    varied: list[tuple[str, Any]] = [*plot.get("each", {"": [""]}).items()]
    first, firsts = varied[0]
    for value in _items(firsts, base):
        found = [{**base, first: value}]
        for name, values in varied[1:]:
            found = [{**one, name: item} for one in found for item in _items(values, one)]
        if "unlike" in plot:
            found = [one for one in found if len({filled(v, one) for v in plot["unlike"]}) > 1]
        if "sample" in plot:
            found = rng.sample(found, min(plot["sample"], len(found)))
        for one in found:
            for name, values in plot.get("draw", {}).items():
                one[name] = rng.choice(_items(values, one))
            yield one


def joined(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with what another one adds to it and replaces in it."""
    found = dict(base)
    for key, value in more.items():
        before = found.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            found[key] = joined(before, value)
        else:
            found[key] = value
    return found


def _merged(one: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step with the steps that it merges, its own fields last."""
    found: dict[str, Any] = {}
    for part in one.get("merge", ()):
        found = joined(found, _merged(written(part, scope), scope))
    own = {key: written(value, scope) for key, value in one.items() if key != "merge"}
    return joined(found, own)


def steps_of(listed: Any, scope: Mapping[str, Any]) -> Iterator[Step]:
    """Yield the steps that are written; a list in a list is a part of it."""
    for item in written(listed, scope):
        one = written(item, scope)
        if isinstance(one, list):
            yield from steps_of(one, scope)
            continue
        step = _merged(one, scope)
        for number in range(filled(step.pop("repeat", 1), scope)):
            yield _step(step, {**scope, "number": number})


def _step(one: Mapping[str, Any], scope: Mapping[str, Any]) -> Step:
    scope = {**scope, **one.get("with", {})}
    serve = written(one.get("serve"), scope)
    plain = {k: v for k, v in one.items() if k not in {"serve", "with"}}
    fields = filled(plain, scope)
    for name in {"who", "lists"} & fields.keys():
        fields[name] = tuple(fields[name])
    if isinstance(fields.get("prompt"), dict):
        stated = fields["prompt"].items()
        said: dict[str, Any] = {k: v if isinstance(v, str) else tuple(v) for k, v in stated}
        fields["prompt"] = UserPrompt(**said)
    if serve is not None:
        fields["serve"] = (filled(serve.get("at", TOOLS), scope), upstream_of(serve, scope))
    return Step(**fields)


def upstream_of(said: Mapping[str, Any], scope: Mapping[str, Any]) -> Upstream:
    """Return a server that answers as it is written: a body, or the events of a stream."""

    def answer(request: HttpRequest) -> Answer:
        message: dict[str, Any] = json.loads(request.body or b"{}")
        here = {**scope, "id": message.get("id", 1), "method": message.get("method", "")}
        listing = "lists" in said and message.get("method") == "tools/list"
        found = filled(said["lists" if listing else "says"], here)
        if "events" in said:
            name = filled(said["events"], here)
            events = [f"event: {name}\ndata: {json.dumps(one)}\n\n" for one in found]
            return Answer("".join(events).encode(), content_type="text/event-stream")
        body = found if isinstance(found, str) else json.dumps(found)
        return Answer(
            body.encode(),
            filled(said.get("status", 200), here),
            filled(said.get("type", "application/json"), here),
            tuple(filled(said.get("headers", {}), here).items()),
        )

    return answer


Hook: TypeAlias = "Callable[[Mapping[str, Any]], Play]"


def play_of(plot: Mapping[str, Any], scope: Mapping[str, Any], hooks: Mapping[str, Hook]) -> Play:
    """Return the play of a plot: its steps, or a hook that plays what steps cannot say."""
    if "play" in plot:
        return hooks[plot["play"]](scope)

    async def play(world: World) -> bool:
        steps = steps_of(plot["steps"], scope)
        return await acting(*steps, over=filled(plot.get("over", 0), scope))(world)

    return play


@cache
def book_of(name: str) -> dict[str, Any]:
    """Return what the file of a class says."""
    book: dict[str, Any] = YAML(typ="safe").load(DIRECTORY / f"{name}.yaml")
    return book


def policies_of(plot: Mapping[str, Any], scope: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the policies of a plot: names of shipped ones, or texts of the book's own."""
    named = filled(plot.get("policy", "default.yaml"), scope)
    own = scope.get("policies", {})
    return tuple(
        filled(own[name], scope) if name in own else name
        for name in ([named] if isinstance(named, str) else named)
    )


def attempts_in(
    name: str, rng: Random, hooks: Mapping[str, Hook], part: str = "plots"
) -> Iterator[Attempt]:
    """Yield the attempts of a book, from one of its lists of plots."""
    book = book_of(name)
    for plot in book[part]:
        for scope in _scopes(plot, book, rng):
            policy = policies_of(plot, scope)
            yield Attempt(filled(plot["name"], scope), play_of(plot, scope, hooks), policy)
