"""What must not leave, told by its form: account numbers, commands, paths.  Pure: no I/O.

Each pattern names a form, never a value.  Where a form has a checksum, the checksum decides.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import re2

from guard.core.secret_forms import BITS, entropy
from guard.core.text_views import decoded, fold, views

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET: Final = "secret_found"  # noqa: S105  (a reason code)
ACCOUNT: Final = "account_found"
COMMAND: Final = "dangerous_command"
PATH: Final = "sensitive_path"
INJECTION: Final = "injection_text"
HOST: Final = "hidden_in_host"
NESTED: Final = "nested_encoding"
CODES: Final = (SECRET, ACCOUNT, COMMAND, PATH, INJECTION, HOST, NESTED)

_COMMANDS: Final = (
    r"\brm\s+(?:-[-\w]+\s+)*-\w*[rf]\w*\s+(?:-[-\w]+\s+)*[/~*]",
    r"\b(?:curl|wget|fetch)\b[^|;&\n]*\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b",
    r"\bbase64\s+(?:-d|-D|--decode)\b[^\n]*\|\s*(?:ba|z|da)?sh\b",
    r"/dev/(?:tcp|udp)/",
    r"\b(?:nc|ncat|netcat)\b[^\n]*\s-\w*[ec]\b",
    r"\bIFS=",
    r"\bmkfs\.|\bdd\b[^\n]*\bof=/dev/",
    r"\b(?:curl|wget|nc)\b[^\n]*\$\(",
    r"\bchmod\s+(?:-R\s+)?[0-7]?777\s+/",
    r"\b(?:printenv|env)\b\s*\|",
    r"(?i)\b(?:python[23]?|perl|ruby|node|php)\s+-[cer]\b[^\n]*\b(?:socket|exec|eval|system)\b",
)
_PATHS: Final = (
    r"/etc/(?:passwd|shadow|sudoers|gshadow)\b",
    r"(?:^|[/~\s\"'=])\.env(?:\.\w+)?(?:$|[\s\"',;)&])",
    r"\.(?:ssh|aws|kube|docker|gnupg|azure)/",
    r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b",
    r"/proc/(?:self|[0-9]+)/environ",
    r"\.(?:netrc|pgpass|git-credentials|npmrc|pypirc|bash_history|zsh_history)\b",
    r"/var/spool/cron|/etc/cron",
)
_INJECTIONS: Final = (
    (
        r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+)*"
        r"(?:previous|prior|above|earlier|preceding)\s+(?:instructions?|prompts?|rules|directions)"
    ),
    r"<\|(?:im_start|im_end|system|endoftext)\|>",
    r"\[/?INST\]|<</?SYS>>",
    r"\byou\s+(?:are|have)\s+now\b[^.\n]{0,40}\b(?:developer|admin|unrestricted|elevated|jailbr)",
    r"\b(?:decode|decrypt)\b[^.\n]{0,60}\band\s+(?:execute|run|eval)",
    r"\b(?:silently|secretly|quietly)\s+(?:\w+\s+)?(?:execute|run|send|post|forward|call|upload)",
    r"\b(?:always|must)\s+use\s+this\s+tool\s+(?:instead|before|first)",
    r"\bdo\s+not\s+(?:tell|inform|mention|reveal|show)\b[^.\n]{0,30}\buser\b",
    r"\bexecute\s+the\s+following\b[^.\n]{0,30}\b(?:command|code|script|diagnostic)",
)


def _any(patterns: tuple[str, ...], flags: str = "") -> re2._Regexp:
    return re2.compile(flags + "|".join(f"(?:{pattern})" for pattern in patterns))


_FORMS: Final = (
    (COMMAND, _any(_COMMANDS)),
    (PATH, _any(_PATHS)),
    (INJECTION, _any(_INJECTIONS, "(?i)")),
)
_NUMBERS: Final = re2.compile(r"\b(?:[0-9][ -]?){12,18}[0-9]\b")
_IBAN: Final = re2.compile(r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_BASE58: Final = re2.compile(r"\b[13LM5K][1-9A-HJ-NP-Za-km-z]{24,51}\b")
_WALLETS: Final = re2.compile(r"\b0x[0-9a-fA-F]{40}\b|\b(?:bc1|ltc1)[a-z0-9]{25,62}\b")
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ESCAPED: Final = re2.compile(r"%25(?:25)*[0-9A-Fa-f]{2}")
CANDIDATES: Final = 1000
"""Numbers of each kind whose checksum is computed, per view of a text."""
_LONG_TOKEN: Final = re2.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")
LONG_TOKENS: Final = 32
"""Tokens of one text that come in and are decoded."""
_LONG_LABEL: Final = 16


@lru_cache(maxsize=256)
def find_leaks(text: str) -> frozenset[str]:
    """Return the codes of what is in a text, in any of its views; secrets are a detector's."""
    found: set[str] = set()
    for view in views(text):
        found.update(code for code, form in _FORMS if form.search(view))
        if ACCOUNT not in found and any(_accounts(view)):
            found.add(ACCOUNT)
    if _ESCAPED.search(text):
        found.add(NESTED)
    return frozenset(found)


def instructs(text: str, *, deep: bool) -> bool:
    """Return whether a text instructs a model.

    Args:
        text: of any length.
        deep: whether every view is looked at; else the text, without disguise of its letters, and
            what its first long tokens are a coding of.
    """
    form = dict(_FORMS)[INJECTION]
    if deep:
        return any(form.search(view) for view in views(text))
    plain = fold(text)
    return bool(form.search(plain)) or any(
        form.search(view)
        for match in islice(_LONG_TOKEN.finditer(plain), LONG_TOKENS)
        for view in decoded(match.group())
    )


def hides_data(host: str) -> bool:
    """Return whether a label of a host name is data in a coding, and no name."""
    for label in fold(host).lower().split("."):
        if any(decoded(label)):
            return True
        mixed = any(c.isdigit() for c in label) and any(c.isalpha() for c in label)
        if len(label) >= _LONG_LABEL and mixed and label.isalnum() and entropy(label) >= BITS:
            return True
    return False


def _accounts(text: str) -> Iterator[bool]:
    """Yield whether each candidate is the number of an account or wallet."""
    yield bool(_WALLETS.search(text))
    for match in islice(_NUMBERS.finditer(text), CANDIDATES):
        yield _is_card([int(c) for c in match.group() if c.isdigit()])
    for match in islice(_IBAN.finditer(text), CANDIDATES):
        yield _is_iban(match.group().replace(" ", ""))
    for match in islice(_BASE58.finditer(text), CANDIDATES):
        yield _is_base58(match.group())


def _is_card(digits: list[int]) -> bool:
    """Luhn, over numbers that begin as cards do."""
    doubled = [sum(divmod(2 * d, 10)) for d in digits[-2::-2]]
    return digits[0] in {3, 4, 5, 6} and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """ISO 13616: the rearranged number is 1 modulo 97."""
    moved = text[4:] + text[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def _is_base58(text: str) -> bool:
    """Base58Check: the last four bytes are the head of a double sha256."""
    number = 0
    for letter in text:
        number = number * 58 + _ALPHABET.index(letter)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    raw = b"\0" * (len(text) - len(text.lstrip("1"))) + raw
    check = hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4]
    return check == raw[-4:]
