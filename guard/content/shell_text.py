"""Commands that destroy, open a way in, or send out, as a shell would read them.  Pure: no I/O.

Commands are looked for in the text and in what a shell would run of it
(:mod:`guard.content.shell_reader`).  The name of a well-known program that is put together from
pieces is dangerous whatever the program is: nobody types that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import re2

from guard.content.shell_reader import read_shell
from guard.core.bounded_cache import bounded_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIMIT: Final = 16 * 1024
"""Characters of a text that are read as a shell reads them; patterns alone look at the rest."""

_DESTROYS: Final = (
    r"\brm\s+(?:-[-\w]+\s+)*-\w*[rfR]\w*\s+(?:-[-\w]+\s+)*(?:/(?:[^t\s]|t[^m]|$|\s)|[~*]|\$HOME|\.\.?(?:\s|$|/\*))",
    r"\brm\s+(?:-[-\w]+\s+)*--(?:recursive|force|no-preserve-root)\b[^\n;|&]*\s[/~*]",
    r"\bmkfs\.|\bdd\b[^\n]*\bof=/dev/|>\s*/dev/(?:sd|nvme|hd)",
    r"\bchmod\s+(?:-\w+\s+)?(?:[0-7]?777|[46][0-7]{3}|\+s|[ugoa]+\+s)\s+/",
    r"[\w:]\s*\(\)\s*\{[^{}\n]{0,60}\|[^{}\n]{0,60}[^&]&\s*;?\s*\}",
    r"\bfind\s+[/~]\S*[^\n|;]*\s-(?:delete|exec(?:dir)?\s+(?:rm|shred|unlink))\b|\bshred\s+-|\bhistory\s+-c\b",
)
SOCKET_BEHIND_OPTIONS: Final = (
    r"(?i)\b(?:python[23]?|perl|ruby|node|php)(?:\s+-\S+)+\s+-[cer]\b[^\n]*\b(?:"
    r"tcpsocket|tcpserver|udpsocket|socket\.(?:socket|create\w*|tcp\w*)|io::socket|fsockopen"
    r"|net\.(?:connect|socket)|popen|child_process|subprocess)\b"
)
"""A connection made by an interpreter whose other options may load the library of sockets."""
_OPENS: Final = (
    r"\b(?:curl|wget|fetch|echo|printf|base64|xxd|rev|tr|openssl|gunzip|zcat|cat)\b[^;&\n]*\|\s*(?:sudo\s+)?(?:/\w+/)*(?:ba|z|da|k)?sh\b",
    r"\b(?:curl|wget)\b[^;&\n]*\|\s*(?:sudo\s+)?(?:python[23]?|perl|ruby|node|php)\b",
    r"\b(?:ba|z|da|k)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*(?:curl|wget|echo|printf|base64)",
    r"\b(?:ba|z|da|k)?sh\s+<<<",
    r"\|\s*(?:sudo\s+)?(?:busybox\s+)?(?:/\w+/)*(?:ba|z|da|k)?sh(?:\s+-s?)?\s*(?:$|[\n;&|)])",
    r"(?:^|[\n;&|=]\s*)(?:source|\.)\s+(?:<\(|/dev/)",
    # A program whose name filters put together.
    r"(?:^|[\n;&|=]\s*)[\"']?(?:\$\(|`)[^\n]*\b(?:echo|printf)\b[^\n]*\|[^\n]*(?:\)|`)[\"']?\s+-",
    r"\beval\s+[\"']?(?:\$\(|`|\$\{?\w)",
    r"/(?:dev|inet[46]?)/(?:tcp|udp)/",
    r"\b(?:nc|ncat|netcat)\b[^\n]*\s-\w*[ec]\b|\bsocat\b[^\n]*\b(?i:exec|system):|\bmkfifo\b[^\n]*\b(?:nc|ncat|sh)\b",
    r"\bbash\s+-i\b[^\n]*>&",
    r"\bIFS=[^\s;]{1,6};\s*\w+=",
    r"\bawk\b[^\n]*\bsystem\s*\(|\b(?:checkpoint-action|to-command)=\W?exec",
    (
        r"(?i)\b(?:python[23]?|perl|ruby|node|php)\s+-[cer]\b[^\n]*\b(?:"
        r"socket\.(?:socket|create\w*)|import[\w ,]*,\s*socket"
        r"|import socket\s*,|from socket|use socket|io::socket|tcpsocket"
        r"|fsockopen|net\.(?:connect|socket)|exec|eval|system|subprocess|popen|child_process|b64decode|__import__|fromhex"
        r"|(?:urlopen|requests|http)\b[^\n]*\b(?:open|environ|getenv))\b"
    ),
    SOCKET_BEHIND_OPTIONS,
    r"\bcrontab\s+-(?:\s|$)|\|\s*crontab\b",
    # Programs that run what an option of theirs names.
    r"\bsed\b[^\n]*?(?:[\s'\";{](?:\d+|\$|/[^/\n]*/)?\s*e\s+[\w/.]|[\s'\"]s/[^/\n]*/[^/\n]*/[gip\d]*e\b)",
    r"(?i)\bgit\b[^\n]*\s-c\s*\S*(?:pager|editor|sshcommand|fsmonitor|askpass|alias\.\w+)\s*=",
    r"\b(?:vim?|ex|view)\b[^\n]*\s(?:-c\s*|\+)['\"]?:?!|\bgdb\b[^\n]*\s-ex\s*['\"]?(?:!|shell)|\bmake\b[^\n]*--eval",
    r"(?i)\bpowershell\b[^\n]*\s-(?:e|enc|encodedcommand)\b|\biex\s*\(|\binvoke-expression\b",
)
_SENDS_OUT: Final = (
    r"\b(?:curl|wget|nc|ncat|telnet)\b(?:[^\n&]|&[^\n&])*(?:\$\(|`|<\()",
    r"\b(?:curl|wget)\b[^\n;|]*\s(?:-[A-Za-z]*T|--upload-file|-[A-Za-z]*F\s*\S*=@|--form\s*\S*=@|-[A-Za-z]*d\s*@|--data\S*\s*@|--post-file)",
    r"\b(?:scp|rsync)\b[^\n;|]*\s(?:~|/root|/home/\w+|/etc|\$HOME)/?\s+[\w.@-]+:",
    r"(?:^|[^.\w-])(?:printenv|env|export -p)\s*\|",
    r"(?i)\b(?:command|cmd|script|shell|code|args?)=\s*(?:printenv|env|export -p)\s*(?:$|[;>&])",
    r"\|\s*(?:curl|nc|ncat|telnet|socat)\b",
    # `echo |` says nothing: so a certificate is looked at.
    r"(?:[^o\s]|[^h\s]o|[^c]ho|[^e]cho)\s*\|\s*openssl s_client\b",
    r"\b(?:nc|ncat|netcat|telnet)\b[^\n;|]*\s<\s*[\w/~.$]",
    r"\b(?:nslookup|dig|host|ping)\b[^\n]*(?:\$\(|`)",
)
COMMANDS: Final = (*_DESTROYS, *_OPENS, *_SENDS_OUT)


def any_of(sources: Iterable[str]) -> re2._Regexp:
    """Return an expression that finds what one of several finds."""
    return re2.compile("|".join(f"(?:{source})" for source in sources))


_COMMAND: Final = any_of(COMMANDS)
_BREAKS_OUT: Final = re2.compile(
    r"(?i)^\s*(?:[\w.@ %-]{0,64})['\"]\s*\)*\s*(?:union\s+(?:all\s+)?select\b"
    r"|;\s*(?:drop|delete|update|insert|alter|exec|copy)\b"
    r"|(?:or|and)\s+['\"(\d][^\n]{0,40}=)[^\n]*(?:--|#|/\*|;\s*$)"
)
"""A value that ends the string of an SQL statement around it, says more and hides the rest."""
INITS: Final = re2.compile(
    r"\beval\s+[\"']?\$\((?:ssh-agent|gpg-agent|keychain|direnv|dircolors|starship|zoxide|mise|fnm"
    r"|pyenv|rbenv|nodenv|conda|brew|opam|luarocks|minikube|docker-machine)(?:\s+[\w.=-]+)*\)[\"']?"
)
"""Programs whose output is meant to be evaluated, and says how the shell finds them."""
_TIDIES: Final = re2.compile(
    r"\brm\s+-[rRf]{1,3}(?:\s+(?:/var/lib/apt/lists|/var/cache/(?:apt|apk|yum|dnf)(?:/archives)?"
    r"|(?:~|/root|\$HOME)/\.cache/[\w-]+|/usr/share/(?:doc|man|locale)|/var/tmp)"
    r"(?:/\*(?:\.deb)?|/)?)+[ \t]*($|[\n;&|)\"'])"
    r"|\b(?:printenv|env)\s*\|\s*cut\s+(?:-d\s*[\"']?=[\"']?\s+-f\s*1|-f\s*1\s+-d\s*[\"']?=[\"']?)"
    r"\s*($|[\n;&|>)\"'])"
    r"|\b(?:printenv|env)\s*\|\s*sed\s+[\"']s/=\.\*//[\"']\s*($|[\n;&|>)\"'])"
)
"""What builds of images clear away, and the names of variables without what they hold."""
_PLAIN: Final = re.compile(r"\\\r?\n|[\\\"'^]|\$\{?IFS(?:%\?\?)?\}?|\$[@*]")
_HINT: Final = re2.compile(r"[\\\"'`$^{?*|]|<<|\b(?:eval|alias)\b|\b(?:curl|wget)\b.*[;&]")


def is_dangerous(text: str, name: str = "") -> bool:
    """Return whether a text has a command that nobody sends by accident.

    Args:
        text: of any length.
        name: of the argument that it is the value of.
    """
    if "eval" in text:
        text = INITS.sub("", text)
    if "rm" in text or "env" in text:
        text = _TIDIES.sub(r"true\1\2\3", text)
    if _BREAKS_OUT.search(text) is not None:
        return True
    return any(_COMMAND.search(reading) for reading in readings(text, name)) or (
        _is_read(text) and _read(text).disguised
    )


def readings(text: str, name: str = "") -> Iterator[str]:
    """Yield the text behind its name, without its quotes, and what a shell would run of it.

    A shell is given the value alone: behind a name and ``=`` its first word would be an assignment.
    """
    yield f"{name}={text}" if name else text
    if _is_read(text):
        yield _PLAIN.sub(lambda match: " " if "IFS" in match.group() else "", text)
        yield _read(text).commands


def _is_read(text: str) -> bool:
    return len(text) <= LIMIT and _HINT.search(text) is not None


_read = bounded_cache(64)(read_shell)
