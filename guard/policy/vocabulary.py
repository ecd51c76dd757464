"""Vocabulary of actions: words by which prompts request them, shipped as policy data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

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
    return _data_file("actions.yaml")


def _data_file(name: str) -> Path:
    return policies_directory() / VOCABULARY / name


def _value_of(path: Path) -> dict[str, Any]:
    """Return the content of a shipped file.

    Raises:
        PolicyError: the file is damaged.
    """
    document = load_document(path)
    if document.problems:
        raise PolicyError(tuple(document.problems))
    value: dict[str, Any] = document.value
    return value


@cache
def _shipped() -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        action: {language: tuple(words) for language, words in languages.items()}
        for action, languages in _value_of(vocabulary_file()).items()
        if action in ACTIONS
    }


@cache
def shipped_shared_hosts() -> frozenset[str]:
    """Return the shipped hosts of several owners.

    Raises:
        PolicyError: the shipped file is damaged.
    """
    return frozenset(_value_of(_data_file("shared_hosts.yaml"))["hosts"])


@cache
def _shipped_reader() -> Callable[[str], tuple[str, ...]]:
    return vocabulary(_shipped())


@cache
def public_mail_providers() -> frozenset[str]:
    """Return the shipped domains at which anybody can have a mailbox.

    Raises:
        PolicyError: the shipped file is damaged.
    """
    return frozenset(_value_of(_data_file("mail-providers.yaml"))["domains"])


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
