"""The attack classes: files of ``plots/``, with generators for what data cannot say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.trust.hooks import HOOKS
from lab.trust.plots import DIRECTORY, attempts_in
from lab.trust.prompts import mention_attempts
from lab.trust.proposals import guessed_attempts, program_attempts
from lab.trust.shipped import shipped_attempts
from lab.trust.switches import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from lab.trust.attacks import Attempt, Switch

GENERATED: Final[dict[str, Callable[[Random], Iterable[Attempt]]]] = {
    "init_guess": guessed_attempts,
    "known_programs": program_attempts,
    "mention": mention_attempts,
    "policies": shipped_attempts,
}


@dataclass(frozen=True, slots=True)
class AttackClass:
    """One class of attacks."""

    id: str
    switches: tuple[Switch, ...]
    """The rules that stop it; with any one off, some attempt of this class must get through."""

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts, the same for the same seed, in an order of the seed's."""
        found: list[Attempt] = []
        if (DIRECTORY / f"{self.id}.yaml").is_file():
            found.extend(attempts_in(self.id, rng, HOOKS))
        if self.id in GENERATED:
            found.extend(GENERATED[self.id](rng))
        rng.shuffle(found)
        yield from found


def discover_attacks() -> tuple[AttackClass, ...]:
    """Return every class by its id."""
    names = sorted({path.stem for path in DIRECTORY.glob("*.yaml")} | GENERATED.keys())
    return tuple(AttackClass(name, SWITCHES[name]) for name in names)
