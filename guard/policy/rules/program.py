"""Rule type ``program``: matches calls that run anything but listed programs.  Pure: no I/O.

Reason codes:

- ``program_unread``: the command is not in the grammar, or is missing.
- ``program_not_listed``: a program or subcommand is not listed, or a shell puts it together.
- ``program_outside``: a path, redirection or working directory is outside ``directory``.
- ``program_network``: a word names a destination, or may become one.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.jsonpath import compile_path
from guard.core.tool_patterns import ToolPattern
from guard.policy.field_types import PathText
from guard.policy.rules.argument import Re2
from guard.policy.rules.base import PolicyOutline, RuleConfig
from guard.values.channels import channels_in
from guard.values.commands import LIMIT, CommandLine, Word, argument_list, read_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.calls import Target
    from guard.core.mappings import PathQuery
    from guard.core.model import Json
    from guard.core.policy import Reason, Situation

UNREAD: Final = "program_unread"
NOT_LISTED: Final = "program_not_listed"
OUTSIDE: Final = "program_outside"
NETWORK: Final = "program_network"
ANY: Final = "any"
RUNNERS: Final = frozenset(
    {"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "tcsh", "zsh", "busybox", "pwsh"}
    | {"eval", "exec", "command", "builtin", "source", ".", "alias", "trap", "coproc", "time"}
    | {
        "env",
        "xargs",
        "find",
        "sudo",
        "su",
        "doas",
        "nice",
        "nohup",
        "timeout",
        "watch",
        "parallel",
    }
)
"""Programs that run what their arguments name; a rule that lists one is refused."""
INTERPRETERS: Final = frozenset({"awk", "node", "perl", "php", "python", "python3", "ruby"})
"""Programs whose arguments may be a program; a rule must list their first words."""
CHANGING: Final = frozenset({"cd", "chdir", "pushd", "popd"})
"""Builtins of shells that go elsewhere without a path: to the home or the previous directory."""
_PATH: Final = re.compile(r"(?:\A(?:-[\w-]*)?|[=,]|:(?!//[^/]))([/~].*)\Z", re.DOTALL)
_ABOVE: Final = re.compile(r"(?:\A|[/=:,])\.(?:\.|[*?\[][^/]*)(?:/|\Z)")
"""A part of a path that leads up, or a pattern that may match one."""
_DISCARD: Final = "/dev/null"


class ProgramRule(RuleConfig):
    """Applies to a call whose command is not made of listed programs alone.

    The command is a text for a shell, or a list of texts: program and arguments.  Every simple
    command in it must be listed.  What the grammar of Bash does not parse is not listed.
    """

    codes = frozenset({UNREAD, NOT_LISTED, OUTSIDE, NETWORK})
    cannot_allow = "a listed program alone does not allow a call"
    type: Literal["program"]
    path: PathText
    """Location of the command, e.g. ``$.command``."""
    programs: Annotated[
        dict[str, Literal["any"] | Annotated[tuple[str, ...], Field(min_length=1)]],
        Field(min_length=1),
    ]
    """Allowed programs, each with its allowed first words (``git: [status, log]``) or ``any``; a
    word in slashes is an RE2 pattern (``sed: ["-n /[0-9]+p/"]``)."""
    refused_words: dict[str, tuple[Re2, ...]] = Field(default_factory=dict)
    """RE2 patterns of the further words that a program may not have, by program; ``*`` for every
    program and for the targets of redirections."""
    directory: str = ""
    """Absolute path of the directory that paths and redirections must stay in, or the location of
    the argument that names it (``$.project``)."""
    working_directory: PathText | None = None
    """Location of the argument that names the working directory; ``directory`` by default."""
    network: bool = False
    """True if words may name a destination; rules about destinations then judge it."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason for the first part of the command that is not allowed."""
        found = next(self.findings(situation.call.call.arguments), None)
        return None if found is None else self.reason(found[0], found[1], targets)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (mappings do not matter)
        """Yield effects that the type cannot have, and programs that run other programs."""
        if self.directory and self.directory[0] not in "/$":
            yield f"`{self.directory}` is not an absolute path; begin it with `/`"
        if self.directory.startswith("$"):
            try:
                _location(self.directory)
            except ValueError as error:
                yield f"`{self.directory}`: {error}"
        for name, first in self.programs.items():
            program = posixpath.basename(name)
            if program in RUNNERS:
                yield f"`{name}` runs what its arguments name; remove it and list those programs"
            elif first != ANY:
                yield from (f"`{entry}`: {broken}" for entry in first if (broken := _broken(entry)))
            elif program in INTERPRETERS:
                yield f"`{name}` runs code in its arguments; list its first words, e.g. `-m pytest`"

    def findings(self, arguments: Json) -> Iterator[tuple[str, str]]:
        """Yield the reason code and the detail of each part that is not allowed."""
        values = [value for _, value in self.path.find(arguments)]
        if not values:
            yield UNREAD, f"no command at {self.path.text}"
        reader = _Reader(self, _root(self.directory, arguments))
        room = LIMIT
        for value in values:
            room -= len(value) if isinstance(value, str | list) else 0
            if room < 0:
                yield UNREAD, "the commands are too long"
                return
            yield from reader.of_value(value)
        if self.working_directory is not None and self.directory:
            for _, value in self.working_directory.find(arguments):
                if not isinstance(value, str) or reader.is_outside(value):
                    yield OUTSIDE, "the working directory is outside the directory"


class _Reader:
    """Findings of one call.

    Args:
        rule: the rule.
        root: path of the directory; empty for a directory that is missing or not absolute.
    """

    def __init__(self, rule: ProgramRule, root: str) -> None:
        self._rule = rule
        self._root = root

    def of_value(self, value: Json) -> Iterator[tuple[str, str]]:
        if isinstance(value, str):
            line = read_command(value)
        elif isinstance(value, list) and all(isinstance(word, str) for word in value):
            line = argument_list([str(word) for word in value])
        else:
            yield UNREAD, "the command is not a text"
            return
        if line.unreadable:
            yield UNREAD, f"the command is unreadable: {line.unreadable}"
        yield from self._of_line(line)

    def _of_line(self, line: CommandLine) -> Iterator[tuple[str, str]]:
        if not line.commands and not line.unreadable:
            yield UNREAD, "the command runs no program"
        for number, words in enumerate(line.commands, 1):
            if not self._is_listed(words):
                yield NOT_LISTED, f"program {number} of the command is not listed"
            if self._rule.directory and _leaves(words):
                yield OUTSIDE, "the command changes to a directory that it does not name"
            for word in words[1:]:
                yield from self._of_argument(word)
        for redirection in line.redirections:
            target = redirection.target
            is_descriptor = redirection.operator in {">&", "<&"} and target.text.isdigit()
            if is_descriptor or target.text == _DISCARD:
                continue
            if not self._rule.directory or not target.is_literal or self.is_outside(target.text):
                yield OUTSIDE, "a redirection leads outside the directory"
            if self._is_refused("*", target):
                yield NOT_LISTED, "a redirection leads to a file that no program may use"
            yield from self._of_argument(target)

    def _is_listed(self, words: tuple[Word, ...]) -> bool:
        if not words or not words[0].is_literal:
            return False
        first = self._rule.programs.get(words[0].text, ())
        for entry in ("",) if first == ANY else first:
            wanted = entry.split()
            begin, rest = words[1 : 1 + len(wanted)], words[1 + len(wanted) :]
            if len(begin) == len(wanted) and all(map(_is_word, begin, wanted)):
                return not any(self._is_refused(words[0].text, word) for word in rest)
        return False

    def _is_refused(self, program: str, word: Word) -> bool:
        refused = self._rule.refused_words
        patterns = (*refused.get("*", ()), *refused.get(program, ()))
        return any(pattern.matches(word.text) for pattern in patterns)

    def _of_argument(self, word: Word) -> Iterator[tuple[str, str]]:
        if word.is_expanded:
            if self._rule.directory:
                yield OUTSIDE, "a word that a shell expands may lead outside the directory"
            if self._rule.network:
                yield NETWORK, "a word that a shell expands may name a destination"
        if self._rule.directory and self.is_outside(word.text):
            yield OUTSIDE, "a path leads outside the directory"
        if (
            not self._rule.network
            and next(channels_in(word.text, mailboxes=True), None) is not None
        ):
            yield NETWORK, "a word names a destination"

    def is_outside(self, text: str) -> bool:
        if _ABOVE.search(text) is not None:
            return True
        found = _PATH.search(text)
        if found is None or found[1] == _DISCARD:
            return False
        path = posixpath.normpath(found[1])
        return not self._root or (
            path != self._root and not path.startswith(f"{self._root.rstrip('/')}/")
        )


def _leaves(words: tuple[Word, ...]) -> bool:
    """Return whether a command changes the directory without a path."""
    changes = bool(words) and words[0].text in CHANGING
    return changes and all(word.text.startswith("-") or not word.text for word in words[1:])


def _is_word(word: Word, wanted: str) -> bool:
    """Return whether a word is what an entry names: a text, or a pattern in slashes."""
    if len(wanted) > 1 and wanted[0] == wanted[-1] == "/":
        return word.is_literal and _pattern(wanted[1:-1]).matches(word.text)
    return word.is_literal and word.text == wanted


@lru_cache(maxsize=256)
def _pattern(text: str) -> ToolPattern:
    return ToolPattern.parse({"re2": text})


@lru_cache(maxsize=64)
def _location(text: str) -> PathQuery:
    return compile_path(text)


def _root(directory: str, arguments: Json) -> str:
    """Return the path of the directory; empty for a location without one absolute path."""
    if directory.startswith("$"):
        found = [value for _, value in _location(directory).find(arguments)]
        directory = found[0] if len(found) == 1 and isinstance(found[0], str) else ""
    return posixpath.normpath(directory) if directory.startswith("/") else ""


def _broken(entry: str) -> str:
    """Return the error of the first pattern of an entry that RE2 refuses, empty for none."""
    try:
        for word in entry.split():
            _is_word(Word(""), word)
    except ValueError as error:
        return str(error)
    return ""
