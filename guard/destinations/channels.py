"""What in the arguments of a tool that is no send can carry data out.  Pure: no I/O.

To read a URL is to tell its host the path and the query, a share is a host, and some statements
of SQL run a program, write a file or open a connection.  A name in a search is none of that: for
tools that read, only what their server would connect to counts; others are asked for mailboxes too.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import re2

from guard.content.decoder import FILE_ENDINGS, Budget, destination_readings
from guard.core.model import Destination
from guard.destinations.canonical import (
    URL_LIMIT,
    canonical_host,
    is_ip,
    malformed,
    read_mailbox,
    read_plain,
)
from guard.destinations.values import find_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK_SCHEMES: Final = frozenset(
    {"http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "scp", "rsync", "telnet", "tftp"}
    | {"git", "svn", "smb", "cifs", "nfs", "afp", "ldap", "ldaps", "gopher", "dict", "rtsp", "rtmp"}
    | {"s3", "s3a", "s3n", "gs", "gcs", "az", "abfs", "abfss", "wasb", "wasbs", "hdfs", "webhdfs"}
    | {"amqp", "amqps", "mqtt", "mqtts", "kafka", "nats", "redis", "rediss", "postgres", "mysql"}
    | {"postgresql", "mariadb", "mongodb", "sqlserver", "oracle", "clickhouse", "tcp", "udp", "tls"}
    | {"dav", "davs", "webdav", "imap", "imaps", "pop3", "smtp", "smtps", "docker", "oci", "irc"}
    | {"stun", "turn", "xmpp", "coap", "ipfs", "magnet", "dns", "nntp", "webcal", "feed", "vnc"}
)
"""Schemes whose host is one in a network, whatever it looks like; in any other a dot says so."""
DECODED: Final = 4096
"""Characters of one word in which a disguised URL is looked for."""

_FILE_URL: Final = re.compile(
    r"\bfile:[/\\]{2}(?!localhost\b|[A-Za-z]:)([\w.-]{2,253})", re.IGNORECASE
)
_SHARE: Final = re.compile(
    r"(?:\A|[\s'\"=(,])(?:\\{2,4}|//)([\w-]{1,63}(?:\.[\w-]{1,63}){0,8})[\\/]"
)
_COPY: Final = re.compile(r"[\w.-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,8}):(?!//)(\S{0,512})")
_LOOSE: Final = re.compile(r"(?:https?|wss?|ftps?):(?!//)[/\\]*[\w\[]", re.IGNORECASE)
"""A URL that some clients forgive."""
_STRIPPED: Final = re.compile(r"[\t\r\n\x00]")
_SIGNS: Final = re.compile(r"[%\\&=+]|[^\x00-\x7f]")
"""What a disguise in one word has."""
_SHORTEST_CODED: Final = 16
"""Characters of a word that may be a coding of the shortest URL."""
_GRANTED: Final = re.compile(r"[:=]\s{0,4}([\w.+-]{1,64}@[A-Za-z][\w-]{0,62})\b(?![.@])")
"""A mailbox behind a role or a name, also where its host has no dot."""
_NO_DOMAIN: Final = tuple(
    ending for ending in FILE_ENDINGS if ending not in {".md", ".zip", ".py", ".sh", ".rs"}
)
"""Endings of files that are no top-level domain: nobody outside has such a host."""


def channels_in(text: str, *, mailboxes: bool) -> Iterator[Destination]:
    """Yield to whom a text in an argument can carry data.

    Args:
        text: of one argument.
        mailboxes: whether a mailbox in it is one, as in every tool that does not only read.
    """
    for reading in _readings(text):
        yield from _outside(reading, mailboxes=mailboxes and (reading is text or "@" not in text))
        yield from _places(reading)
    yield from statements_in(text)


def _outside(text: str, *, mailboxes: bool) -> Iterator[Destination]:
    """Yield the URLs of hosts in a network, and mailboxes.

    Of a reading they count only where the text has no ``@``: backwards, any mailbox is another one.
    """
    for found in find_destinations(text):
        is_mail = mailboxes and found.kind == "mail" and not found.host.endswith(_NO_DOMAIN)
        if is_mail or (found.kind == "url" and _is_remote(found)):
            yield found


def _readings(text: str) -> Iterator[str]:
    """Yield a text, and what a word is where it is read as an address."""
    yield text
    if len(text) > DECODED:
        return
    if _STRIPPED.search(text) is not None:
        # Clients drop these from an address.
        yield _STRIPPED.sub("", text)
    word = len(text.split()) == 1
    if word and (len(text) >= _SHORTEST_CODED or _SIGNS.search(text) is not None):
        yield from destination_readings(text, Budget(DECODED))


def _is_remote(url: Destination) -> bool:
    scheme = url.canonical.partition(":")[0].rpartition("+")[0] or url.canonical.partition(":")[0]
    return scheme in NETWORK_SCHEMES or "." in url.host or ":" in url.host


def _places(text: str) -> Iterator[Destination]:
    """Yield hosts of shares and of copies, and a word that is a URL to some clients."""
    if "//" in text or "\\" in text:
        for found in (*_FILE_URL.finditer(text), *_SHARE.finditer(text)):
            host = canonical_host(found[1])
            dotted = "." in found[1].strip(".") and not found[1].endswith(_NO_DOMAIN)
            if host is not None and (dotted or "\\" in found[0] or "file:" in found[0].lower()):
                yield Destination("ip" if is_ip(host) else "host", host, host)
    word = text.strip()
    if len(word) > URL_LIMIT or len(word.split()) != 1:
        return
    copied = _COPY.fullmatch(word)
    if copied is not None:
        yield read_plain(f"{copied[1]}/{copied[2].lstrip('/')}")
    if _LOOSE.match(word) is not None:
        yield malformed(word)
    scheme = word.partition("://")[0].lower()
    if scheme in NETWORK_SCHEMES and "://" in word:
        yield from (d for d in find_destinations(word) if d.kind == "malformed")


def receivers_in(text: str) -> Iterator[Destination]:
    """Yield the mailboxes and URLs in a text that is said to name none, disguised ones as well."""
    for reading in _readings(text):
        yield from _outside(reading, mailboxes=reading is text or "@" not in text)
        for granted in _GRANTED.finditer(reading):
            yield read_mailbox(granted[1])
    if (climbed := climbing(text)) is not None:
        yield climbed


def climbing(text: str) -> Destination | None:
    """Return what a relative path names that climbs out of where it begins; else None."""
    if ".." not in (path := unquote(unquote(text)).replace("\\", "/")) or "://" in path:
        return None
    if len(path) > DECODED or len(path.split()) > 1:
        return None
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and (not kept or kept[-1] == ".."):
            kept.append(part)
        elif part == "..":
            kept.pop()
        elif part not in {"", "."}:
            kept.append(part)
    return Destination("handle", "/".join(kept).lower()) if kept[:1] == [".."] else None


# --- statements of SQL --------------------------------------------------------------------------

_COMMENT: Final = re2.compile(r"(?s)/\*!?\d*(.*?)\*/|--[^\n]*(?:\n|$)")
_JOINED: Final = re2.compile(r"'\s*(?:\|\||\+)\s*N?'")
_STATEMENT: Final = re2.compile(
    r"(?im)(?:^|[;(]|\bas|\bthen|\bbegin|\bdo)\s*(?:with|select|insert|update|delete|copy|attach|exec|execute|call|create"
    r"|alter|do|declare|begin|set|load|install|values|merge|explain|export|unload|backup|bulk|\\[!a-z]|\.[a-z]+\s)"
)
_LEAVES: Final = re2.compile(
    r"(?ims)(\bcopy\b[^;]+?\b(?:to|from)\s+program\b"
    r"|\bcopy\b[^;]+?\bto\s*'"
    r"|\binto\s+(?:out|dump)file\b"
    r"|\b(?:xp|sp_oa)_?\w+\s*[\s('\"]"
    r"|\b(?:openrowset|opendatasource|openquery)\s*\("
    r"|\bbulk\s+insert\b"
    r"|\battach\s+(?:database\b|if\b|(?:'[^']*'|\"[^\"]*\"|[:@]\w+)\s+as\b)"
    r"|\bdblink\w*\s*\("
    r"|\bcreate\s+(?:or\s+replace\s+)?(?:server|subscription|publication|external|foreign|stage|credential|extension|database\s+link)\b"
    r"|\butl_(?:http|smtp|tcp|inaddr|file)\b|\bdbms_(?:ldap|cloud|scheduler)\b|\bhttpuritype\b"
    r"|\b(?:load_extension|load_file|lo_export|lo_import|sys_exec|sys_eval|pg_notify|query_to_xml\w*)\s*\("
    r"|\b(?:http|net\.http|extensions\.http)_(?:get|post|put|delete|head)\s*\("
    r"|\b(?:url|remote|remotesecure|s3|gcs|hdfs|mysql|postgresql|mongodb|jdbc|odbc|executable|file)\s*\(\s*'"
    r"|\bcopy\s+into\s+['@]|\bunload\s*\(|\bexport\s+(?:data|database)\b|\binstall\s+\w+|\bbackup\s+(?:database|log|table)\b"
    r"|^\s*\\(?:!|copy\b|o\b|g\s|w\b|connect\b|c\s)|^\s*\.(?:shell|system|output|once|import|open|load|backup|save|clone|excel)\b)"
)


def statements_in(text: str) -> Iterator[Destination]:
    """Yield statements of SQL that run a program, write a file of the server or connect elsewhere.

    Each is a handle of its own, known by its digest: whoever lets one pass lets no other pass.
    """
    if len(text) < len("attach ''") or (" " not in text and "/*" not in text):
        return
    plain = _COMMENT.sub(r" \1 ", text) if "/*" in text or "--" in text else text
    plain = _JOINED.sub("", plain) if "'" in plain else plain
    if _STATEMENT.search(plain) is None or (found := _LEAVES.search(plain)) is None:
        return
    verb = "-".join(re.findall(r"[a-z]+", found.group(1).lower())[:2]) or "command"
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    yield Destination("handle", f"sql:{verb}:{digest}")
