"""Commands that destroy, open a way in, or send out, as a shell would read them.  Pure: no I/O.

A shell removes quotes and backslashes, expands braces and variables, and runs what a substitution
prints.  Each of these is undone here, a few times over, and the commands are looked for in what
comes out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 4
"""How often expansion is repeated."""
LIMIT: Final = 16 * 1024
"""Characters of a text that are expanded; patterns alone look at the rest."""

_DESTROYS: Final = (
    r"\brm\s+(?:-[-\w]+\s+)*-\w*[rfR]\w*\s+(?:-[-\w]+\s+)*(?:/(?:[^t\s]|t[^m]|$|\s)|[~*]|\$HOME|\.\.?(?:\s|$|/\*))",
    r"\brm\s+(?:-[-\w]+\s+)*--(?:recursive|force|no-preserve-root)\b[^\n;|&]*\s[/~*]",
    r"\bmkfs\.|\bdd\b[^\n]*\bof=/dev/|>\s*/dev/(?:sd|nvme|hd)",
    r"\bchmod\s+(?:-\w+\s+)?(?:[0-7]?777|\+s|[ugoa]+\+s)\s+/",
    r":\(\)\s*\{[^}]*:\s*\|\s*:",
    r"\bfind\s+[/~]\S*[^\n|;]*\s-delete\b|\bshred\s+-|\bhistory\s+-c\b",
)
_OPENS: Final = (
    r"\b(?:curl|wget|fetch|echo|printf|base64|xxd|rev|tr|openssl|gunzip|zcat|cat)\b[^;&\n]*\|\s*(?:sudo\s+)?(?:/\w+/)*(?:ba|z|da|k)?sh\b",
    r"\b(?:curl|wget)\b[^;&\n]*\|\s*(?:sudo\s+)?(?:python[23]?|perl|ruby|node|php)\b",
    r"\b(?:ba|z|da|k)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*(?:curl|wget|echo|printf|base64)",
    r"\b(?:ba|z|da|k)?sh\s+<<<",
    r"\beval\s+[\"']?(?:\$\(|`|\$\{?\w)",
    r"/dev/(?:tcp|udp)/",
    r"\b(?:nc|ncat|netcat)\b[^\n]*\s-\w*[ec]\b|\bsocat\b[^\n]*\bexec:|\bmkfifo\b[^\n]*\b(?:nc|ncat|sh)\b",
    r"\bbash\s+-i\b[^\n]*>&",
    r"\bIFS=",
    r"(?i)\b(?:python[23]?|perl|ruby|node|php)\s+-[cer]\b[^\n]*\b(?:sockets?|exec|eval|system|subprocess|popen|child_process|b64decode)\b",
    r"\bcrontab\s+-(?:\s|$)|\|\s*crontab\b",
    r"(?i)\bpowershell\b[^\n]*\s-(?:e|enc|encodedcommand)\b|\biex\s*\(|\binvoke-expression\b",
)
_SENDS_OUT: Final = (
    r"\b(?:curl|wget|nc|ncat|telnet)\b[^\n]*(?:\$\(|`|<\()",
    r"\b(?:curl|wget)\b[^\n;|]*(?:-T|--upload-file|-F\s*\S*=@|--form\s*\S*=@|-d\s*@|--data\S*\s*@|--post-file)",
    r"\b(?:printenv|env|export -p)\s*\|",
    r"(?i)\b(?:command|cmd|script|shell|code|args?)=\s*(?:printenv|env|export -p)\s*(?:$|[;>&])",
    r"\|\s*(?:curl|nc|ncat|telnet|socat|openssl s_client)\b",
    r"\b(?:nslookup|dig|host|ping)\b[^\n]*(?:\$\(|`)",
)
_COMMAND: Final = re2.compile(
    "|".join(f"(?:{source})" for source in (*_DESTROYS, *_OPENS, *_SENDS_OUT))
)
_PLAIN: Final = re.compile(r"\\\r?\n|[\\\"'^]|\$\{?IFS(?:%\?\?)?\}?|\$[@*]")
_ASSIGNED: Final = re.compile(
    r"(?:^|[;&|\s])(\w{1,30})=(\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|[^\s;&|]{1,200})"
)
_VARIABLE: Final = re.compile(r"\$(?:\{(\w{1,30})\}|(\w{1,30}))")
_BRACES: Final = re.compile(r"(?<!\$)\{([^{}\s]{0,200},[^{}\s]{0,200})\}")
_PRINTED: Final = re.compile(
    r"(?:\$\(|`)\s*(?:echo|printf)?\s*(?:-\w+\s+)?([^`()|;&$]{1,200}?)\s*(?:\)|`)"
)
_QUOTED: Final = re.compile(r"\$'((?:[^'\\]|\\.){0,400})'")
_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{1,2})|\\u([0-9A-Fa-f]{4})|\\([0-7]{1,3})")
_WILD: Final = re.compile(r"/(?:usr/)?(?:s?bin|\?{3,4})/([\w?*\[\]]{1,12})")
_NAMES: Final = ("rm", "cat", "curl", "wget", "bash", "sh", "nc", "dd", "chmod")
_HINT: Final = re.compile(r"[\\\"'`$^{?*]")


def is_dangerous(text: str) -> bool:
    """Return whether a text has a command that nobody sends by accident."""
    return any(_COMMAND.search(reading) for reading in readings(text))


def readings(text: str) -> Iterator[str]:
    """Yield the text, and what a shell makes of it, step by step."""
    yield text
    if len(text) > LIMIT or not _HINT.search(text):
        return
    yield _unquoted(text)
    seen = text
    for _ in range(ROUNDS):
        expanded = _expanded(seen)
        if expanded == seen:
            break
        yield expanded
        seen = expanded
    yield _unquoted(seen)
    yield _expanded(_unquoted(seen))


def _unquoted(text: str) -> str:
    return _PLAIN.sub(lambda match: " " if "IFS" in match.group() else "", text)


def _expanded(text: str) -> str:
    """Return the text with one round of expansion."""
    text = _QUOTED.sub(lambda match: _ESCAPE.sub(_letter, match.group(1)), text)
    values = {name: value.strip("\"'") for name, value in _ASSIGNED.findall(text)}
    if values:
        text = _VARIABLE.sub(
            lambda match: values.get(match.group(1) or match.group(2), match.group()), text
        )
    text = _BRACES.sub(lambda match: match.group(1).replace(",", " "), text)
    text = _PRINTED.sub(lambda match: match.group(1).strip("\"'"), text)
    return _WILD.sub(_named, text)


def _letter(match: re.Match[str]) -> str:
    digits = match.group(1) or match.group(2)
    return chr(int(digits, 16) if digits else int(match.group(3), 8) & 0xFF)


def _named(match: re.Match[str]) -> str:
    """Return the command that a path with wildcards could name."""
    word = match.group(1)
    if not set(word) & set("?*["):
        return word
    source = "".join({"?": ".", "*": ".*"}.get(c, c if c in "[]" else re.escape(c)) for c in word)
    try:
        pattern = re.compile(source)
    except re.error:
        return match.group()
    return next((name for name in _NAMES if pattern.fullmatch(name)), match.group())
