r"""Statements of SQL that reach outside the database that they are sent to.  Pure: no I/O.

Some statements run a program, write or read a file of the server, connect elsewhere, tell other
sessions or services something, or give somebody access.  Which do is declared per dialect
(:data:`REACHES`); a text is looked through for those of every dialect, as no argument says which
server reads it.  It is read as SQL is: comments between words are blanks, names may be quoted or
spelt in escapes (PostgreSQL, ``U&"\0064blink"``), literals joined.

Where the argument's name says that it is SQL, statements are a closed list besides: one that
begins with no verb of :data:`INSIDE` counts as well, in any dialect.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import re2

from guard.core.model import Destination

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENT_SIGN: Final = re2.compile(r"/\*!?\d*|\*/|--")
_JOINED: Final = re2.compile(r"'\s*(?:\|\||\+)\s*[NE]?'")
_QUOTED_NAME: Final = re2.compile(r"[\"`\[\]]")
_ESCAPED_NAME: Final = re.compile(r"\\(?:\+([0-9A-Fa-f]{6})|([0-9A-Fa-f]{4}))")
_BEGINS: Final = re2.compile(
    r"(?im)(?:^|[;(]|\bas|\bthen|\bbegin|\bdo)\s*(?:with|select|insert|update|delete|copy|attach|exec|execute|call|create"
    r"|alter|do|declare|begin|set|load|install|values|merge|explain|export|unload|backup|bulk|change|vacuum|pragma|import|put"
    r"|notify|listen|grant|prepare|send|restore|reconfigure|add|clone|start|security|\\[!a-z]|\.[a-z]+\s)"
)
"""Without such a beginning a text has no statement that reaches out."""

REACHES: Final[dict[str, tuple[str, ...]]] = {
    "any": (
        r"\binto\s+(?:out|dump)file\b",
        r"\binto\s+(?:(?:\[[^\]]+\]|\"[^\"]+\"|\w+)?\.){3}[\w\[\"]",
        r"\bexec(?:ute)?\s*\(|\bexecute\s+immediate\b|\b(?:exec(?:ute)?|call)\b[^;]*?'[^']*@[^']*'",
        r"\bprepare\s+\w+\s+from\s+[N'@]",
        r"\bcreate\s+(?:or\s+(?:replace|alter)\s+)?(?:function|procedure|trigger|event\s+[^;]{1,200}?\son\s+schedule|aggregate|language|rule\s+\S+\s+as\s+on|server|subscription|publication|external|foreign|stage|credential|extension|(?:public\s+|shared\s+)?database\s+link)\b",
        r"\balter\s+(?:server|subscription|publication|foreign|extension|stage|(?:data)?share)\s",
        r"\bcreate\s+(?:or\s+replace\s+)?(?:(?:api|storage|security|notification|catalog)\s+integration|named\s+collection|(?:persistent\s+|temporary\s+)?secret\s+(?:\w+\s+)?\(|dictionary\s+\S+\s*\(|java\s+(?:source|class)|(?:directory|library|assembly)\s+\S+\s+(?:as|is|from)\s+['0]|endpoint\s+\S+\s+(?:state|as)\b|connection\s+\S+\s+(?:type|options)\b)",
        r"\bcreate\s+(?:user|login|role)\s+\S+\s+(?:identified|with|password|for\s+login|from)\b",
        r"\bcreate\s+(?:user\s+mapping|linked\s+server)\b|\bimport\s+foreign\s+schema\b",
        r"(?:^|;)\s*grant\s+[\w, ]{2,120}\s+on\s+[^;]{1,200}\s+to\s",
        r"'[^'=]{0,80}\bhost(?:addr)?\s*=\s*[\w-]+\.[\w.-]+|'(?:/net/|//[\w-]|\\\\[\w-])",
        r"https?://[^'\s]{0,200}'\s*\|\|",
    ),
    "postgresql": (
        r"\bcopy\b[^;]+?\b(?:to|from)\s+program\b|\bcopy\b[^;]+?\bto\s*[NE]?'",
        r"(?:^|;)\s*do\b\s*(?:language\s+\w+\s*)?\$|(?:^|;)\s*do\s+(?:language\s+\w+\s+)?[NE]?'",
        r"(?:^|;)\s*notify\s+(?:\w+|\"[^\"]*\")\s*(?:,\s*[UNE]?&?['$]|;)|\bpg_notify\s*\(|(?:^|;)\s*listen\s+\w+\s*;",
        r"\balter\s+system\b|\balter\s+(?:database|role|user)\s+[^;]*\bset\b|\bsecurity\s+label\s+(?:for|on)\b",
        r"(?:^|;)\s*load\s+[NE]?'|\bset\s+(?:session\s+|local\s+)?(?:dynamic_library_path|(?:session|local|shared)_preload_libraries)\b",
        r"\bdblink\w*\s*\(|\b(?:lo_export|lo_import|query_to_xml\w*|table_to_xml\w*|pg_read\w*|pg_ls\w*|pg_file_\w+|pg_logical_emit_message|pg_create_logical_\w+|pg_execute_\w+|currtid2?|plpy\.\w+)\s*\(",
        r"\b(?:http|net\.http|extensions\.http)_(?:get|post|put|delete|head)\s*\(|\b(?:aws_lambda|aws_s3|aws_commons|azure_storage|pg_net|net|http|cron)\.\w+\s*\(",
    ),
    "mysql and mariadb": (
        r"\bload\s+(?:data|xml)\b|\bset\s+(?:global|persist\w*)\b|\bset\s+@@(?:global|persist)",
        r"\bload_file\s*\(|\bsys_(?:exec|eval|get|set)\s*\(",
        r"\bchange\s+(?:master|replication\s+source)\s+to\b|\bclone\s+instance\s+from\b|\bstart\s+(?:slave|replica|group_replication)\b",
        r"\bengine\s*=?\s*(?:federated|connect|s3|spider)\b",
    ),
    "sqlite and duckdb": (
        r"\battach\s+(?:database\b|if\b|(?:'[^']*'|\"[^\"]*\"|[:@]\w+)\s+as\b)",
        r"\b(?:load_extension|writefile|readfile|edit|shell|system|exec|getenv|fts3_tokenizer)\s*\(",
        r"\bvacuum\s+(?:\w+\s+)?into\b|\bpragma\s+\w*directory\s*=|\binstall\s+\w+|\bexport\s+database\b|\bpragma\s+(?:database_list_import|add_parquet_key)\b",
        r"\bfrom\s+(?:\w+\s*\(\s*)?'[^']*\|\s*'",
    ),
    "sql server": (
        r"\b(?:xp_|sp_oa)\w+\s*[\s('\";\]]",
        r"\bsp_(?:send_|execute_external|invoke_external|addlinkedserver|addlinkedsrvlogin|serveroption|configure|makewebtask|add_job|start_job|addextendedproc)\w*|(?:^|;)\s*reconfigure\s*(?:with|;|\z)",
        r"\b(?:openrowset|opendatasource|openquery)\s*\(|\bbulk\s+insert\b",
        r"\bbackup\s+(?:database|log|table|certificate)\b|\brestore\s+(?:(?:database|log)\s+\S+|headeronly|filelistonly|verifyonly)\s+from\s+(?:disk|url|tape|database_snapshot)\b",
        r"\bsend\s+on\s+conversation\b|\bbegin\s+(?:dialog\s+(?:conversation\s+)?|conversation\s+timer\s*\()@",
    ),
    "oracle": (
        r"\b(?:from|join|into|update)\s+\w+(?:\.\w+)?@\w+(?:[\s;,)]|\z)|\borganization\s+external\b",
        r"\butl_(?:http|smtp|tcp|inaddr|file|mail|url)\b|\b(?:apex_mail|apex_web_service|apex_instance_admin)\b|\bhttpuritype\b|\bdburitype\b",
        r"\bdbms_(?:ldap|cloud\w*|scheduler|java\w*|advisor|xslprocessor|pipe|alert|aq\w*|job|file_transfer|network_acl_admin|backup_restore|datapump|lob\s*\.\s*(?:fileopen|loadfromfile|load[bc]lobfromfile))\b",
    ),
    "clickhouse": (
        r"\b(?:url|remote|remotesecure|s3|gcs|hdfs|azureblobstorage|urlcluster|s3cluster|hdfscluster|mysql|postgresql|mongodb|jdbc|odbc|redis|sqlite|iceberg|deltalake|hudi|executable|file)\s*\(\s*'",
        r"\bengine\s*=?\s*(?:url|s3\w*|kafka|rabbitmq|nats|hdfs|mysql|postgresql|mongodb|jdbc|odbc|redis|distributed|executable\w*|file|azure\w*)\s*(?:\(|settings\b)",
        r"\bsource\s*\(\s*(?:http|executable|mysql|postgresql|mongodb|redis|odbc|jdbc|file|clickhouse|cassandra)\b",
    ),
    "warehouses": (
        r"\bsystem\$(?:send_\w+|wait_for_services|create_\w+)|\bcopy\s+into\s+['@\"]|\bunload\s*\(|\bexport\s+data\b|\bput\s+['\"]?file:|\bget\s+@",
        r"\bexternal_query\s*\(|\binsert\s+overwrite\s+(?:local\s+)?directory\b|\badd\s+(?:jar|file|archive)s?\s+['\"]?(?:/|\w+:/)|\b(?:reflect|java_method|ai_query|http_request|try_reflect)\s*\(",
        r"\btransform\s*\([^;]*\busing\s+'|\bml\.(?:generate|understand|translate|annotate|process|transcribe)\w*\s*\(",
    ),
    "clients": (
        r"^\s*\\(?:!|copy\b|o\b|g\s|w\b|connect\b|c\s|i\b|include\b|gexec\b|setenv\b)",
        r"^\s*\.(?:shell|system|output|once|import|open|load|backup|save|clone|excel|read|archive|restore|log|www)\b",
    ),
}
"""What reaches outside, by dialect: statements and functions, as expressions of RE2."""
_REACHES: Final = re2.compile(
    "(?ims)(" + "|".join(form for forms in REACHES.values() for form in forms) + ")"
)

INSIDE: Final = frozenset(
    {"select", "with", "insert", "update", "delete", "replace", "merge", "upsert", "values"}
    | {"table", "explain", "analyze", "analyse", "describe", "desc", "show", "use", "if", "else"}
    | {"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release", "set"}
    | {"reset", "create", "alter", "drop", "truncate", "rename", "comment", "vacuum", "reindex"}
    | {"cluster", "refresh", "lock", "unlock", "declare", "fetch", "close", "move", "open"}
    | {"pragma", "print", "go", "optimize", "check", "checkpoint", "discard", "deallocate"}
    | {"prepare", "execute", "exec", "call", "revoke", "from", "summarize", "pivot", "unpivot"}
    | {"while", "for", "loop", "return", "raise", "case", "when", "then", "elsif", "elseif"}
    | {"exit", "continue", "null", "perform", "waitfor", "throw", "cache", "uncache", "flush"}
)
"""Verbs of statements that stay inside, but for those of :data:`REACHES`."""
_SQL_NAMES: Final = frozenset({"sql", "statement", "statements", "ddl", "dml"})
"""Parts of an argument's name that say that it is SQL."""
_NAME_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LITERALS: Final = (
    re2.compile(r"(?s)'(?:[^']|'')*'|\$\w*\$.*?\$\w*\$|\"[^\"]*\"|`[^`]*`"),
    re2.compile(r"(?s)'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"),
)
"""Literals and quoted names, without and with escapes by backslashes: servers differ."""
_REMARK: Final = re2.compile(r"(?s)/\*.*?\*/|--[^\n]*")
_VERB: Final = re2.compile(r"(?:^|;)[\s(]*([A-Za-z]+)")
_SHORTEST: Final = len("do ''")


def statements_in(text: str, name: str = "") -> Iterator[Destination]:
    """Yield what in a text is a statement of SQL that reaches outside its database.

    It is a handle of its own, known by the digest of the text: whoever lets one pass lets no other
    pass.

    Args:
        text: of one argument.
        name: of the argument; it makes nothing harmless.
    """
    if len(text) < _SHORTEST:
        return
    apart = " " in text or "/*" in text or "\n" in text or text[0] in "\\."
    found = _reaching(text) if apart else ""
    if (
        not found
        and not text.isidentifier()
        and not _SQL_NAMES.isdisjoint(map(str.lower, _NAME_PART.findall(name)))
    ):
        found = _unknown(text)
    if found:
        verb = "-".join(re.findall(r"[a-z]+", found.lower())[:2]) or "command"
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        yield Destination("handle", f"sql:{verb}:{digest}")


def _reaching(text: str) -> str:
    """Return the first words by which a text reaches outside, empty where none does."""
    plain = text
    if "/*" in text or "--" in text:
        # What stands behind the sign is read on: in a literal it begins no comment.
        plain = _COMMENT_SIGN.sub(" ", text)
    if "'" in plain:
        plain = _JOINED.sub("", plain)
    if "\\" in plain and ("U&" in plain or "u&" in plain):
        plain = _ESCAPED_NAME.sub(_letter, plain)
    if _BEGINS.search(plain) is None:
        return ""
    found = _REACHES.search(plain)
    if found is None and _QUOTED_NAME.search(plain) is not None:
        found = _REACHES.search(_QUOTED_NAME.sub("", plain))
    return "" if found is None else str(found.group(1))


def _letter(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2], 16)
    return chr(code) if code < 0xD800 else ""  # noqa: PLR2004  (surrogates, and what no name has)


def _unknown(text: str) -> str:
    """Return the verb of a statement that is on no list, empty where all are."""
    for literals in _LITERALS:
        bare = _REMARK.sub(" ", literals.sub("''", text))
        for verb in _VERB.findall(bare):
            if verb.lower() not in INSIDE:
                return str(verb)
    return ""
