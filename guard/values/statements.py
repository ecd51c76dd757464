"""Statements of SQL that may reach outside their database, or that write values.  Pure: no I/O.

``sqlglot`` parses a text in the dialects of :data:`DIALECTS`.  Statements and nodes that stay
inside are a closed list: any other statement, an unknown function, a text that no dialect parses
and a text that servers split into tokens differently counts as a destination of its own.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2

from guard.core.bounded_cache import bounded_cache
from guard.core.model import Destination
from guard.core.work import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LIMIT: Final = 8 * 1024
"""Maximum length of a statement: the slowest one of this length takes .3 s in one dialect."""
COST: Final = 200
"""Units of work per character: a message has room for five statements of the maximum length."""
DIALECTS: Final = ("", "postgres", "mysql", "tsql")
"""Dialects that are tried in turn; the first that parses the text decides."""
_BUILT_IN: Final = ("", "sqlite", "postgres", "mysql", "tsql", "oracle", "bigquery", "snowflake")
"""Dialects whose tables of functions name what computes a value."""
_MODEL: Final = re.compile(r"(?:AI|ML)[A-Z]|Generate(?:Text|Table|Bool|Int|Double|Embedding)\Z")
"""Functions that ask a model of a service."""
_VERBS: Final = frozenset(
    {"select", "insert", "update", "delete", "replace", "merge", "upsert", "values", "copy"}
    | {"attach", "exec", "execute", "call", "create", "alter", "drop", "truncate", "do", "declare"}
    | {"begin", "set", "load", "install", "explain", "unload", "vacuum", "pragma", "notify"}
    | {"listen", "grant", "prepare", "broadcast"}
)
"""First words of SQL statements: a text with another one is not parsed."""
_BRACKETED: Final = frozenset({"select", "values", "exec", "execute", "unload"})
"""First words that may stand before a bracket; others are calls of a program's functions there."""
_PHRASES: Final[dict[str, frozenset[str]]] = {
    "add": frozenset({"jar", "file", "archive"}),
    "backup": frozenset({"database", "log", "table", "certificate"}),
    "bulk": frozenset({"insert"}),
    "change": frozenset({"master", "replication"}),
    "clone": frozenset({"instance"}),
    "export": frozenset({"data", "database"}),
    "import": frozenset({"foreign", "database"}),
    "put": frozenset({"file"}),
    "restore": frozenset({"database", "log"}),
    "security": frozenset({"label"}),
    "send": frozenset({"on"}),
    "start": frozenset({"slave", "replica", "group_replication"}),
}
"""First words that are common elsewhere, with the second words that make them SQL."""
_ALL_VERBS: Final = _VERBS | _PHRASES.keys() | {"with"}
_WORD_LIMIT: Final = 24
_WITH: Final = re2.compile(
    r"(?is)^\s*(?:recursive\s+)?[\w\"]+\s*(?:\([^)]*\)\s*)?\s*as\s*(?:not\s+)?(?:materialized\s*)?\("
)
_WRITING: Final = frozenset({"insert", "update", "merge", "replace", "upsert"})
_FIRST: Final = re2.compile(
    r"(?s)^(?:[\s(;]|/\*.*?\*/|--[^\n]*\n)*([A-Za-z]+)(\(|[\s\[\"'/;]|--|\z)"
)
_COMMENT: Final = re2.compile(r"(?s)/\*.*?\*/")
_SECOND: Final = re2.compile(r"\w+")
_SIGN: Final = re2.compile(
    r"(?:^|[\s(,=])[NnEeXx]?'(?:[^']*'|[^']{200,}\z)|\w[\"\]`]?\((?:[^s]|s[^)])|\$\w*\$|\s=\s|/\*"
    r"|(?i:\b(?:from|join|into)\s+(?:\w+@|@)\w+)(?:[\s;,)]|\z)|^\s*(?i:select|with)\b[^;]*;"
    r"|^\s*(?i:import\s+foreign\s+schema|bulk\s+insert|change\s+(?:master|replication)\s"
    r"|start\s+(?:slave|replica|group_replication)|add\s+jar|security\s+label)\b"
    r"|^\s*(?i:install)\s+\w+(?:\s+from\s+\w+)?\s*;\s*(?i:load)\b"
)
"""Parts of a statement that a sentence seldom has: a literal, a call, an assignment, a comment."""
_EXPLAINED: Final = re2.compile(
    r"(?i)^[\s(]*(?:explain|describe|desc)\s+(?:query\s+plan\s+|analyze\s+|verbose\s+|\([\w\s,]*\)\s*)*"
    r"(select|with|insert|update|delete|merge|values|table)\b"
)
_REPLACE: Final = re2.compile(r"(?is)^\s*replace(?:\s|/\*.*?\*/)+into\b")
"""An insertion that overwrites, as the parser does not know it."""
_SHOWN: Final = re2.compile(
    r"(?i)^\s*(?:(?:show|describe|desc|explain|savepoint|release|rollback|abort)(?:\s+[\w.\"]+)*"
    r"|(?:begin|start|commit|end)(?:\s+(?:transaction|work))?|vacuum(?:\s+(?:full|analyze))?)\s*;?\s*$"
)
"""Statements of words alone, which name no file and no host."""
_PRAGMA: Final = re2.compile(r"(?i)^\s*pragma\s+[\w.]+\s*(?:\(\s*\w+\s*\))?\s*;?\s*$")
_CLIENT: Final = re2.compile(
    r"^\s*(?:\\(?:!|[a-z]+\b)|\.(?:shell|system|import|load|output|once|open|save|backup|clone)\s)"
)
"""A command of a client for databases."""
_UNLIKE: Final = re2.compile(
    r"(?s)\\['\"]|/\*!|/\*(?:[^*]|\*[^/])*/\*|--[^\s-]|\{[{%#]|\b[qQ]'|\[[^\]]*['\"]|`[^`]*['\"]"
    r"|(?i)\b(?:from|join|into)\s+[\w.\"]+@\w|\bupdate\s+[\w.\"]+@\w+\s+set\b"
)
"""Signs by which servers split a text into tokens differently: escapes, comments, quotes, links."""
_EVERY_DIALECT: Final = re2.compile(r"#|\$\w*\$")
"""Signs that are a comment or a quote in some dialects: all must agree."""
_SQL_NAMES: Final = frozenset({"sql", "statement", "statements", "ddl", "dml"})
"""Parts of an argument's name that declare SQL."""
_NAME_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FILE: Final = re2.compile(r"[/\\:|@]")
"""Signs of a file, URL or link in the name of a table."""
_SHORTEST: Final = len("do ''")
_DEFINED: Final = frozenset({"TABLE", "VIEW", "INDEX", "SCHEMA"})
"""Kinds of objects that hold data of the database itself."""
_HEAD: Final = 1024
"""Length of the part in which signs of a statement are searched."""
_TOO_DEEP: Final = 64
"""Maximum number of brackets that are open at once."""


class Reading(NamedTuple):
    """The facts of one text."""

    reaches: tuple[str, ...] = ()
    """Names of what may reach outside: a verb, or ``function:`` and a name."""
    writes: bool = False
    """True if a statement stores values."""


def statements_in(text: str, name: str = "", *, is_sql: bool = False) -> Iterator[Destination]:
    """Yield a destination for each part of a statement that may reach outside its database.

    A statement is a handle with the digest of the text, a function one with its name: an operator
    who lists a handle allows this statement, or this function.

    Args:
        text: value of one argument.
        name: name of the argument; it makes nothing harmless.
        is_sql: whether the policy declares that the argument is SQL.
    """
    if len(text) < _SHORTEST or text.isidentifier():
        return
    is_sql = is_sql or not _SQL_NAMES.isdisjoint(map(str.lower, _NAME_PART.findall(name)))
    if not is_sql and not _has_verb(text):
        return
    for part in _read(text, is_sql=is_sql).reaches:
        if part.startswith("function:"):
            yield Destination("handle", f"sql:{part}")
        else:
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
            yield Destination("handle", f"sql:{part}:{digest}")


def writes_values(text: str) -> bool:
    """Return whether a text is a statement that stores values, in a tool that may only read."""
    return _has_verb(text) and _read(text, is_sql=False).writes


def _has_verb(text: str) -> bool:
    word = text[:_WORD_LIMIT].partition(" ")[0]
    if word.isalpha() and len(word) < _WORD_LIMIT and word.lower() not in _ALL_VERBS:
        return False
    start = text[:LIMIT]
    found = _FIRST.search(start)
    if found is None:
        return _CLIENT.search(text) is not None or start.lstrip().startswith("/*!")
    verb = str(found.group(1)).lower()
    if verb in _VERBS:
        return found.group(2) != "(" or verb in _BRACKETED
    if verb != "with" and verb not in _PHRASES:
        return False
    rest = str(_COMMENT.sub(" ", start[found.end(1) :]))
    if verb == "with":
        return _WITH.search(rest) is not None
    second = _SECOND.search(rest)
    return second is not None and second.group().lower() in _PHRASES[verb]


@bounded_cache(64)
def _read(text: str, *, is_sql: bool) -> Reading:
    first = _FIRST.search(text[:LIMIT])
    verb = "client" if first is None else str(first.group(1)).lower()
    has_sign = is_sql or _SIGN.search(text[:_HEAD]) is not None or first is None
    unread = Reading((verb,), verb in _WRITING) if has_sign else Reading()
    if len(text) > LIMIT or _depth(text) > _TOO_DEEP or _UNLIKE.search(text) is not None:
        return unread
    explained = _EXPLAINED.search(text)
    if explained is not None:
        text = text[explained.start(1) :]
    text = str(_REPLACE.sub("INSERT INTO", text))
    if _SHOWN.search(text) is not None or _PRAGMA.search(text) is not None:
        return Reading()
    spend(COST * len(text))
    readings: list[Reading] = []
    must_agree = _EVERY_DIALECT.search(text) is not None
    for dialect in DIALECTS[:3] if must_agree else DIALECTS:
        statements = _parser()(text, dialect)
        if statements is not None:
            readings.append(_of_statements(statements, verb, has_sign=has_sign))
        if readings and not must_agree:
            return readings[0]
        if statements is None and must_agree:
            return unread
    reaches = tuple(dict.fromkeys(part for reading in readings for part in reading.reaches))
    return Reading(reaches, any(r.writes for r in readings)) if readings else unread


def _depth(text: str) -> int:
    """Return the largest number of brackets that are open at once, whatever quotes say."""
    depth = most = 0
    for sign in text:
        if sign in "([{":
            depth += 1
            most = max(most, depth)
        elif sign in ")]}":
            depth -= 1
    return most


def _of_statements(statements: list[Any], verb: str, *, has_sign: bool) -> Reading:
    """Return what parsed statements reach and write."""
    nodes = _nodes()
    parts: list[str] = []
    is_inside = [isinstance(one, nodes.inside) for one in statements]
    # A sentence begins with a verb as well; several statements of which one is known are SQL.
    counts = has_sign or (len(statements) > 1 and any(is_inside))
    for statement, inside in zip(statements, is_inside, strict=True):
        if isinstance(statement, nodes.grants) or (counts and not inside):
            parts.append(verb if len(statements) == 1 else _verb_of(statement))
        elif inside:
            found = _outside_of(statement)
            parts += (one for one in found if has_sign or not one.startswith("function:"))
    writes = (has_sign and verb in _WRITING) or any(
        isinstance(one, nodes.writes) or one.find(*nodes.writes) is not None for one in statements
    )
    return Reading(tuple(dict.fromkeys(parts)), writes)


def _verb_of(statement: Any) -> str:
    return re.sub(r"[^a-z]", "", type(statement).__name__.lower()) or "statement"


def _outside_of(statement: Any) -> Iterator[str]:
    """Yield what in a statement that itself stays inside may reach outside."""
    nodes = _nodes()
    kind = _verb_of(statement)
    if isinstance(statement, nodes.defines) and (
        str(statement.args.get("kind") or "").upper() not in _DEFINED
        or not all(isinstance(one, nodes.properties) for one in _properties(statement))
    ):
        yield kind
    for node in statement.walk():
        is_qualified = type(node.parent).__name__ == "Dot" and node.parent.expression is node
        if isinstance(node, nodes.functions) or (is_qualified and isinstance(node, nodes.function)):
            name = _function_name(node)
            if name not in nodes.known:
                yield f"function:{name}"
        elif isinstance(node, nodes.outside):
            yield _verb_of(node)
        elif isinstance(node, nodes.table) and _is_elsewhere(node):
            yield "table"


def _properties(statement: Any) -> Iterable[Any]:
    properties: Any = statement.args.get("properties")
    return properties.expressions if properties is not None else ()


def _function_name(node: Any) -> str:
    parts = [node.name if isinstance(node, _nodes().functions) else node.sql_name()]
    while node.parent is not None and type(node.parent).__name__ == "Dot":
        node = node.parent
        parts.insert(0, node.this.name)
    return ".".join(parts).lower()


def _is_elsewhere(table: Any) -> bool:
    """Return whether the name of a table is a file, a link or a table of another server."""
    names = [table.name, table.db, table.catalog]
    return type(table.this).__name__ in {"Dot", "Literal"} or any(
        _FILE.search(name) is not None for name in names if name
    )


@lru_cache(maxsize=1)
def _nodes() -> SimpleNamespace:
    """Return the closed lists of types of nodes, by what they may do.

    The parser is loaded at the first statement.
    """
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

    defines = (exp.Create, exp.Drop, exp.Alter)
    writes = (exp.Insert, exp.Update, exp.Merge)
    models = [kind for name, kind in vars(exp).items() if _MODEL.match(name) is not None]
    outside = (
        *(exp.ReadCSV, exp.ReadParquet, exp.ToFile, exp.QueryTransform, exp.Directory),
        *(exp.Command, exp.Copy, exp.Predict, exp.EngineProperty, *models),
    )
    excluded = {name for kind in outside if issubclass(kind, exp.Func) for name in kind.sql_names()}
    known = {name for one in _BUILT_IN for name in Dialect.get_or_raise(one).parser_class.FUNCTIONS}
    return SimpleNamespace(
        inside=(
            *(exp.Query, exp.Values, exp.Delete, exp.TruncateTable, exp.Analyze, exp.Comment),
            *(exp.Transaction, exp.Commit, exp.Rollback, exp.Describe, exp.Use, exp.Show),
            *(exp.Semicolon, *defines, *writes),
        ),
        writes=writes,
        defines=defines,
        properties=(exp.TemporaryProperty, exp.SchemaCommentProperty, exp.MaterializedProperty),
        grants=(exp.Grant,),
        # Functions without a type of their own.
        functions=(exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc),
        function=(exp.Func,),
        # Names of functions that some dialect has and that compute a value.
        known=frozenset(name.lower() for name in known - excluded),
        outside=outside,
        table=(exp.Table,),
    )


@lru_cache(maxsize=1)
def _parser() -> Callable[[str, str], list[Any] | None]:
    """Return a function that parses statements, and returns None for what is not SQL."""
    import logging

    import sqlglot
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it logs the text of statements

    def parse(text: str, dialect: str) -> list[Any] | None:
        try:
            return [one for one in sqlglot.parse(text, dialect=dialect) if one is not None]
        except (SqlglotError, RecursionError):
            return None

    return parse
