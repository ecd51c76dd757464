"""Vocabulary of actions: words by which prompts request them, shipped as policy data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from guard.core.errors import PolicyError
from guard.core.mappings import ACTIONS, ActionName
from guard.policy.yaml_loader import load_document
from guard.provenance.actions import vocabulary
from guard.settings import VOCABULARY, policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


def vocabulary_file(name: str = "actions") -> Path:
    """Return a file of shipped data: the words of actions, or some domains."""
    return policies_directory() / VOCABULARY / f"{name}.yaml"


@cache
def _shipped(name: str) -> dict[str, Any]:
    """Return the content of a shipped file.

    Raises:
        PolicyError: the file is damaged.
    """
    document = load_document(vocabulary_file(name))
    if document.problems:
        raise PolicyError(tuple(document.problems))
    value: dict[str, Any] = document.value
    return value


def shipped_shared_hosts() -> frozenset[str]:
    """Return the shipped hosts of several owners."""
    return frozenset(_shipped("shared_hosts")["hosts"])


def public_mail_providers() -> frozenset[str]:
    """Return the shipped domains at which anybody can have a mailbox."""
    return frozenset(_shipped("mail-providers")["domains"])


@cache
def _shipped_reader() -> Callable[[str], tuple[str, ...]]:
    return vocabulary(_shipped_words())


def _shipped_words() -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        action: {language: tuple(words) for language, words in languages.items()}
        for action, languages in _shipped("actions").items()
        if action in ACTIONS
    }


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
    words = _shipped_words()
    for entry in entries:
        for action, languages in entry.items():
            known = words.setdefault(action, {})
            for language, more in languages.items():
                known[language] = (*known.get(language, ()), *more)
    return vocabulary(words)
