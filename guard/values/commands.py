"""Facts of a shell command: simple commands, operators, redirections, expansions.  Pure: no I/O.

The grammar of Bash (``tree-sitter-bash``) parses the text.  Only the nodes in this module are read;
any other node, a parse error and any byte outside a token make the whole command unreadable.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tree_sitter import Node, Tree

LIMIT: Final = 16 * 1024
"""Maximum length of a command, in bytes: the grammar reads the slowest one in 0.3 s."""
SIGNS: Final = 512
"""Maximum number of operators, brackets and substitutions: the grammar is quadratic in them."""
DEPTH: Final = 40
"""Maximum depth of a parse tree."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|(?<![^\\][ \t])\\\n")
"""Characters that shells and the grammar read differently; a line that is continued in a word."""
_SIGNS: Final = re.compile(r"[|&;()<>{}`$=\[\]]")
_STATEMENTS: Final = frozenset({"program", "list", "pipeline", "subshell", "redirected_statement"})
_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})
_OPERATORS: Final = frozenset({"&&", "||", "|", "|&", ";", "&", "\n"})
_BRACKETS: Final = frozenset({"(", ")", "$(", "<(", ">("})
_REDIRECTIONS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", ">&", "<&", "<>"})
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE_IN_QUOTES: Final = re.compile(r"\\([$`\"\\])")
_GLOB: Final = re.compile(r"[*?\[\]]")
_SEPARATOR: Final = re.compile(r"[\s|&;()<>'\"]|\A#")
_EXPANDED: Final = re.compile(r"[{}!^()]|\A~|[=:]~")
"""Brace and tilde expansion, history, extended patterns."""


class Word(NamedTuple):
    """One word of a command."""

    text: str
    """The word without its quotes."""
    is_pattern: bool = False
    """True if a shell replaces the word by the names of files that match it."""
    is_expanded: bool = False
    """True if a shell puts another text in place of a part of the word."""

    @property
    def is_literal(self) -> bool:
        """Return whether a program gets exactly this text."""
        return not self.is_pattern and not self.is_expanded


class Redirection(NamedTuple):
    """A file that a command reads or writes by an operator."""

    operator: str
    target: Word


class CommandLine(NamedTuple):
    """The facts of one command text."""

    commands: tuple[tuple[Word, ...], ...] = ()
    """Simple commands: program and arguments, those of substitutions included."""
    operators: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    unreadable: str = ""
    """Reason why the command was not read; empty for a command that was read as a whole."""


class _UnreadableError(ValueError):
    """A node outside the closed list, or a tree that is too deep."""


@bounded_cache(64)
def read_command(text: str) -> CommandLine:
    """Return the facts of a shell command."""
    try:
        reader = _read(text)
    except _UnreadableError as error:
        return CommandLine(unreadable=str(error))
    return CommandLine(tuple(reader.commands), tuple(reader.operators), tuple(reader.redirections))


def argument_list(words: Iterable[str]) -> CommandLine:
    """Return the facts of a program that is started without a shell."""
    return CommandLine((tuple(map(Word, words)),))


def _read(text: str) -> _Reader:
    source = text.encode("utf-8", "surrogatepass")
    if len(source) > LIMIT:
        raise _UnreadableError("too long")
    if _CONTROLS.search(text) is not None:
        raise _UnreadableError("a control character")
    if sum(1 for _ in _SIGNS.finditer(text)) > SIGNS:
        raise _UnreadableError("too many operators")
    root = _parser()(source).root_node
    if root.has_error:
        raise _UnreadableError("not in the grammar")
    reader = _Reader(source)
    reader.statement(root, 0)
    if not reader.covers_source():
        raise _UnreadableError("text outside the commands")
    return reader


@lru_cache(maxsize=1)
def _parser() -> Callable[[bytes], Tree]:
    """Return a parse function; the grammar is loaded at the first command."""
    import tree_sitter
    import tree_sitter_bash

    language = tree_sitter.Language(tree_sitter_bash.language())
    return lambda source: tree_sitter.Parser(language).parse(source)


class _Reader:
    """Reads a parse tree; a node that no method expects ends the reading."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[tuple[Word, ...]] = []
        self.operators: list[str] = []
        self.redirections: list[Redirection] = []
        self._source = source
        self._tokens: list[tuple[int, int]] = []

    def statement(self, node: Node, depth: int) -> None:
        """Read a node that holds commands."""
        _check_depth(depth)
        if node.type == "command":
            self._command(node, depth)
        elif node.type == "file_redirect":
            self._redirection(node, depth)
        elif node.type == "comment":
            self._take(node)
        elif node.type in _STATEMENTS or node.type in _SUBSTITUTIONS:
            for child in node.children:
                if not self._is_operator(child):
                    self.statement(child, depth + 1)
        else:
            raise _UnreadableError(f"a construct of type `{node.type}`")

    def covers_source(self) -> bool:
        """Return whether only blanks stand between the tokens that were read."""
        end = 0
        for start, stop in [*sorted(self._tokens), (len(self._source), len(self._source))]:
            between = self._source[end:start].replace(b"\\\n", b"")
            if start < end or between.strip(b" \t\n"):
                return False
            end = stop
        return True

    def _is_operator(self, node: Node) -> bool:
        if node.is_named:
            return False
        if node.type in _OPERATORS:
            self.operators.append(node.type)
        elif node.type not in _BRACKETS:
            raise _UnreadableError("an unknown operator")
        self._take(node)
        return True

    def _command(self, node: Node, depth: int) -> None:
        words: list[Word] = []
        for child in node.children:
            if child.type == "command_name":
                words += [self._word(part, depth + 1) for part in child.children]
            elif child.type == "file_redirect":
                self._redirection(child, depth + 1)
            else:
                words.append(self._word(child, depth + 1))
        self.commands.append(tuple(words))

    def _redirection(self, node: Node, depth: int) -> None:
        operator, targets = "", []
        for child in node.children:
            if child.type == "file_descriptor":
                self._take(child)
            elif not child.is_named and child.type in _REDIRECTIONS and not operator:
                operator = child.type
                self._take(child)
            else:
                targets.append(self._word(child, depth + 1))
        if len(targets) != 1 or not operator:
            # The grammar counts an argument behind the file as a second file.
            raise _UnreadableError("a redirection without one file")
        self.redirections.append(Redirection(operator, targets[0]))

    def _word(self, node: Node, depth: int) -> Word:
        _check_depth(depth)
        kind = node.type
        if kind == "concatenation":
            parts = [self._word(child, depth + 1) for child in node.children]
            return Word(
                "".join(part.text for part in parts),
                any(part.is_pattern for part in parts),
                any(part.is_expanded for part in parts),
            )
        if kind == "string":
            return self._string(node, depth)
        if kind in _SUBSTITUTIONS:
            self.statement(node, depth + 1)
            return Word("", is_expanded=True)
        if kind == "expansion" and [child.type for child in node.children] != [
            "${",
            "variable_name",
            "}",
        ]:
            raise _UnreadableError("a parameter expansion with an operator")
        text = self._take(node)
        if kind in {"word", "number"} and node.child_count == 0:
            bare = _ESCAPE.sub("", text)
            if _SEPARATOR.search(bare) is not None:
                # The grammar takes a line break before ``\\;`` into the word.
                raise _UnreadableError("an operator in a word")
            return Word(
                _ESCAPE.sub(r"\1", text),
                _GLOB.search(bare) is not None,
                _EXPANDED.search(bare) is not None or "$" in bare or "`" in bare,
            )
        if kind == "raw_string":
            return Word(text[1:-1])
        if kind in {"ansi_c_string", "simple_expansion", "expansion"}:
            return Word("", is_expanded=True)
        raise _UnreadableError(f"a word of type `{kind}`")

    def _string(self, node: Node, depth: int) -> Word:
        text, end = "", node.start_byte
        is_expanded = False
        for child in node.children:
            # The grammar has no token for blanks at the ends of a string.
            text += self._blanks(end, child.start_byte)
            end = child.end_byte
            if child.type == "string_content":
                content = self._take(child)
                if "`" in _ESCAPE.sub("", content) or "\\\n" in content:
                    raise _UnreadableError("a backtick or a continued line in a string")
                text += _ESCAPE_IN_QUOTES.sub(r"\1", content)
            elif child.type == '"':
                self._take(child)
            else:
                is_expanded |= self._word(child, depth + 1).is_expanded
        return Word(text, is_expanded=is_expanded)

    def _blanks(self, start: int, end: int) -> str:
        text = self._source[start:end].decode()
        if text.strip(" \t\n"):
            raise _UnreadableError("text outside a string")
        return text

    def _take(self, node: Node) -> str:
        self._tokens.append((node.start_byte, node.end_byte))
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")


def _check_depth(depth: int) -> None:
    if depth > DEPTH:
        raise _UnreadableError("nested too deeply")
