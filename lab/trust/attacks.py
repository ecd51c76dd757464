"""The base class of attack classes, and their discovery.

A class is one file of this package: a generator of attempts over carriers, wordings, encodings,
languages and tools.  A new class takes part in ``guard lab eval trust``, and in the test that
switches each rule of the model off, without being named anywhere.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import lab.trust

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from random import Random

    from guard.core.model import Json
    from lab.trust.harness import World

Play: TypeAlias = "Callable[[World], Awaitable[bool]]"
"""Plays an attempt; returns whether the attacker got bytes that nobody had approved."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generated attempt."""

    name: str
    """Subject of the variation, for the report."""
    play: Play
    policy: str | tuple[str, ...] = "default.yaml"
    """Names of shipped policies, or texts of some."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the guard, beyond those of every world."""


def calling(
    tool: str,
    arguments: Mapping[str, Json],
    *,
    prompt: str = "",
    read: tuple[str, Mapping[str, Json], Json] | None = None,
) -> Play:
    """Play one call, after a prompt and a tool's answer where they are given.

    Args:
        tool: called.
        arguments: of the call.
        prompt: that the user types before.
        read: tool, arguments and result of an earlier call.
    """

    async def play(world: World) -> bool:
        agent = world.agent()
        if prompt:
            await agent.prompt(prompt)
        if read is not None:
            await agent.call(*read)
        return (await agent.call(tool, arguments, "done")).forwarded

    return play


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that takes away one rule of the trust model, to show that the suite needs it."""

    rule: str
    """Rule that is off, in a few words."""
    off: Callable[[Patch], None]
    attempts: int = 400
    """Attempts of the class within which one must then get through."""
    among: str = ""
    """Part of the names of the attempts that need the rule; empty where any may."""


class Patch:
    """Replaces attributes for a while, as a test's ``monkeypatch`` does."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute that exists."""
        before = inspect.getattr_static(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._before:
            setattr(*self._before.pop())


class AttackClass(ABC):
    """One class of attacks."""

    id: ClassVar[str]
    switches: ClassVar[tuple[Switch, ...]] = ()
    """The rules that stop it; with any one off, some attempt of this class must get through."""

    @abstractmethod
    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts, the same for the same seed."""


def discover_attacks() -> tuple[AttackClass, ...]:
    """Import every module of this package and return one instance of each class in it."""
    found: dict[str, AttackClass] = {}
    for info in pkgutil.walk_packages(lab.trust.__path__, "lab.trust."):
        module = importlib.import_module(info.name)
        for item in vars(module).values():
            if _is_concrete(item) and item.__module__ == module.__name__:
                if item.id in found:
                    msg = f"two attack classes are named `{item.id}`"
                    raise TypeError(msg)
                found[item.id] = item()
    return tuple(found[name] for name in sorted(found))


def _is_concrete(item: object) -> bool:
    is_class = isinstance(item, type) and issubclass(item, AttackClass)
    return is_class and not inspect.isabstract(item)
