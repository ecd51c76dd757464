"""Vocabulary of actions: words by which prompts request them, shipped as policy data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from guard.core.errors import PolicyError
from guard.core.mappings import ACTIONS
from guard.policy.yaml_loader import load_document
from guard.provenance.actions import vocabulary
from guard.settings import VOCABULARY, policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from guard.core.mappings import ActionName


def vocabulary_file() -> Path:
    """Return the file of the shipped words."""
    return policies_directory() / VOCABULARY / "actions.yaml"


@cache
def _shipped() -> dict[str, dict[str, tuple[str, ...]]]:
    document = load_document(vocabulary_file())
    if document.problems:
        raise PolicyError(tuple(document.problems))
    return {
        action: {language: tuple(words) for language, words in languages.items()}
        for action, languages in document.value.items()
        if action in ACTIONS
    }


@cache
def shipped_shared_hosts() -> frozenset[str]:
    """Return the shipped hosts of several owners.

    Raises:
        PolicyError: the shipped file is damaged.
    """
    document = load_document(policies_directory() / VOCABULARY / "shared_hosts.yaml")
    if document.problems:
        raise PolicyError(tuple(document.problems))
    return frozenset(document.value["hosts"])


@cache
def _shipped_reader() -> Callable[[str], tuple[str, ...]]:
    return vocabulary(_shipped())


def read_vocabulary(
    further: Iterable[Mapping[ActionName, Mapping[str, tuple[str, ...]]]],
) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of the actions that a sentence names.

    Args:
        further: words of policies, beside the shipped ones.

    Raises:
        PolicyError: the shipped file is damaged.
    """
    entries = [entry for entry in further if entry]
    if not entries:
        return _shipped_reader()
    words = {action: dict(languages) for action, languages in _shipped().items()}
    for entry in entries:
        for action, languages in entry.items():
            known = words.setdefault(action, {})
            for language, more in languages.items():
                known[language] = (*known.get(language, ()), *more)
    return vocabulary(words)
