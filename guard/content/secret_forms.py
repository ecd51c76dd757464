"""Secrets told by their form: a set of named expressions, searched in one pass.  Pure: no I/O.

The forms here complete a rule set that is kept elsewhere (:mod:`guard.detectors.secrets`): what
has a private key's body, a password in an address, or a name that says it is a secret.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import re2

from guard.content.protocol_parameters import opens_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BITS: Final = 3.0
"""Bits per character from which a text looks drawn at random."""
ONE_PASS: Final = 4096
"""Characters up to which one search for all forms is faster than one for each."""
_SAME: Final = 16
"""Characters at the end of a placeholder that are all one."""
_TOKEN_BEFORE: Final = re2.compile(r"[A-Za-z0-9_+/-]*$")
_TOKEN_AFTER: Final = re2.compile(r"^[A-Za-z0-9_+/=~-]*")


@dataclass(frozen=True, slots=True)
class SecretForm:
    """One form that a secret can have."""

    kind: str
    pattern: str
    """RE2; where it has a group ``secret``, that is the secret."""
    confirms: Callable[[str], bool] | None = None
    """Asked about what the pattern found, where the form alone says too little."""


def entropy(text: str) -> float:
    """Return bits per character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


def looks_random(value: str) -> bool:
    """Return whether a value looks drawn at random, not written."""
    return any(c.isdigit() for c in value) and entropy(value) >= BITS


def is_login(value: str) -> bool:
    """Return whether a value is a name and a password, as HTTP's Basic scheme codes them."""
    try:
        name, colon, secret = base64.b64decode(value + "=" * (-len(value) % 4)).partition(b":")
    except ValueError:
        return False
    return bool(name and colon and secret) and (name + secret).isascii()


_PLACEHOLDER: Final = re.compile(
    r"(?i)^(?:[*x.#-]+|your\w*|my\w*|<.*|\$.*|%.*|\{.*|none|null|true|false|required|string|example\w*|changeme|placeholder|redacted"
    r"|os\..*|env\..*|process\.env.*|self\..*|get\w*\(.*)"
)


_TO_REPLACE: Final = frozenset(
    {"your", "change", "changeme", "replace", "replaceme", "insert", "generate", "placeholder"}
    | {"example", "dummy", "todo", "here", "sample", "fixme", "fill"}
)
"""Words of what stands where a secret is to be put."""
_BETWEEN: Final = re.compile(r"[-_. ]+")
_SHORT: Final = 4


def is_placeholder(value: str) -> bool:
    """Return whether a value is words, one of which says that a secret is to be put there."""
    parts = [part for part in _BETWEEN.split(value.strip("<>[]{}")) if part]
    words = [part.lower() for part in parts if part.isalpha()]
    numbers = [part for part in parts if part.isdigit() and len(part) <= _SHORT]
    return len(words) + len(numbers) == len(parts) and not _TO_REPLACE.isdisjoint(words)


def is_password(value: str) -> bool:
    """Return whether a value that is called a password is one and no word about passwords."""
    kinds = (any(map(str.isdigit, value)), any(map(str.isalpha, value)))
    written = _PLACEHOLDER.match(value) is not None or is_placeholder(value)
    return all(kinds) and not written and "://" not in value


def _is_put(value: str) -> bool:
    """Return whether a value that a name calls secret is one, as far as its form says."""
    return looks_random(value) and not is_placeholder(value)


def _is_key(value: str) -> bool:
    """Return whether what has the head of a key is one."""
    return not is_placeholder(value)


_DRAWN_MARKS: Final = frozenset("!@#$%^&*?+=~|")
"""Marks that people put into passwords, and that no name, version or path has."""


def _is_of_all_kinds(value: str) -> bool:
    """Return whether a word has letters of both cases, digits and marks: no word of prose."""
    kinds = (str.islower, str.isupper, str.isdigit, _DRAWN_MARKS.__contains__)
    bare = value.rstrip("?!")
    return all(any(map(kind, bare)) for kind in kinds)


_SIGNATURE: Final = r"&Signature=[A-Za-z0-9%+/]{26,48}=?(?=&|\s|$)"
_UNTIL: Final = r"&Expires=[0-9]{9,11}(?=&|\s|$)"
_SCOPE: Final = re.compile(
    r"\b(?:[A-Za-z0-9]{3,32}(?:(?:/|%(?:25)*2F)[a-z0-9-]{2,30}){3}(?:/|%(?:25)*2F)aws4_request"
    r"|[\w.-]{1,64}(?:@|%(?:25)*40)[\w.-]{1,80}(?:(?:/|%(?:25)*2F)[a-z0-9-]{2,30}){3}(?:/|%(?:25)*2F)goog4_request)"
    rf"|[?&]AWSAccessKeyId=[A-Z0-9]{{16,32}}(?={_SIGNATURE}{_UNTIL}|{_UNTIL}{_SIGNATURE})"
)
"""Who signed, with the scope of a signature: every signed URL of AWS, of stores that speak its
protocol and of Google Cloud shows it; in AWS's second version, with the signature and its end."""
_SIGNED: Final = ("4_request", "AWSAccessKeyId")
_OWN: Final = re.compile(
    r"\bhttps://(?:(?:[a-z0-9-]{1,63}\.)?zoom\.us(?::443)?/[jsw]/[0-9]{9,12}\?pwd=[A-Za-z0-9_-]{24,40}(?:\.[0-9])?"
    r"|firebasestorage\.googleapis\.com/v0/b/[\w.-]{1,80}/o/[\w%./~-]{1,300}\?alt=media&token=[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|graph\.microsoft\.com/[\w./()'-]{1,200}/delta\?(?:\$delta)?token=[A-Za-z0-9_-]{20,600}={0,2})"
    r"(?![\w.-])"
)
"""A link that invites to a meeting or shares a file: its passcode, as drawn, is what the link is
sent for.  And one to the changes since last time, whose token says since when."""
_LINKED: Final = ("zoom.us", "graph.microsoft.com", "firebasestorage.googleapis.com")
_OF_LINKS: Final = frozenset({"password", "session_token", "ibm_cloud_iam"})
"""Forms told by the name alone, which such a link uses for what is none."""
_PUBLIC: Final = re2.compile(
    r"\bphc_[A-Za-z0-9]{36,50}$|^pub[0-9a-f]{32}$|^pk\.eyJ1[A-Za-z0-9_-]{20,150}\.[A-Za-z0-9_-]{20,24}$"
)
"""The key of a project that every page shows its visitors (PostHog, Datadog, Mapbox)."""
_OF_EVENTS: Final = re.compile(r"\b(?:distinct_id|mp_lib)\\?[\"']?\s*[:=]")
_PROJECT: Final = re2.compile("^[0-9a-f]{32}$")
"""The project of what visitors of a page did, and what stands beside it (Mixpanel)."""
_CONFIRMS: Final = re.compile(
    r"https://[\w.-]{1,253}(?::[0-9]{1,5})?/(?:[\w-]{1,40}/){0,4}(?:(?:re)?set|verify|confirm|activate|accept|magic|unsubscribe|recover|invitations?|invite|join)"
    r"(?:[_-](?:e?-?mail|password|account|link|address|registration))?/?\?(?:[\w.-]{1,40}=[^\s&]{0,100}&){0,6}"
    r"(?:(?:confirmation_|verification_|reset_|unsubscribe_|invite_|invitation_)?token|t|key|code)=$"
)
"""What stands before the token of a link that a service mails, to see whose mailbox it is."""
_LINK_WITH_TOKEN: Final = re.compile(r"(https://[^\s\"'<>?]{1,400})\?(?:jwt|token)=$")
_TOKEN_OF_PAGE: Final = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+(?=$|[\s\"'<>&#])")
_DEVICE: Final = re.compile(r"[\w-]{20,24}:APA91b")
"""How the address of a device begins that Google's service delivers to."""
_LINK: Final = 600
"""Characters of a link before its token."""
_UUID: Final = re2.compile(r"(?i)^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_LOCAL: Final = re2.compile(
    r"://([a-z][a-z_]{2,15}):([a-z][a-z_]{2,15})@(?:localhost|127\.0\.0\.1|\[::1\]|db|postgres|mysql|mariadb|mongo|redis|rabbitmq)(?:[:/?]|$)"
)
"""A login of a machine's own service whose password is its name: what its image ships with."""


def without_invitations(text: str) -> str:
    """Return a text without the links in it that invite to meetings."""
    return _OWN.sub("", text) if any(host in text for host in _LINKED) else text


def without_signers(text: str) -> str:
    """Return a text without the names of those who signed URLs in it."""
    return _SCOPE.sub("", text) if any(word in text for word in _SIGNED) else text


OWN_FORMS: Final = (
    # To its end, or to that of the text: the head alone gives nothing away.
    SecretForm(
        "private_key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?s:.*?)(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY"
        r"(?: BLOCK)?-----|\z)",
    ),
    SecretForm("private_key", r"PuTTY-User-Key-File-\d(?s:.*)"),
    SecretForm("aws_key_id", r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}\b"),
    SecretForm("github_token", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    SecretForm("github_token", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    SecretForm("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    SecretForm("slack_token", r"\bxox[abdeprs]-[A-Za-z0-9%-]{10,}"),
    SecretForm("slack_token", r"\bxapp-\d-[A-Z0-9]{6,}-\d{6,}-[0-9a-f]{20,}"),
    SecretForm("stripe_key", r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}"),
    SecretForm("model_key", r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}", _is_key),
    SecretForm("project_key", r"\bsk-(?:ant|proj|svcacct)-[A-Za-z0-9_-]{20,}", _is_key),
    SecretForm("google_key", r"\bAIza[A-Za-z0-9_-]{35}"),
    SecretForm("google_token", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    SecretForm("sendgrid_key", r"\bSG\.[A-Za-z0-9_.-]{16,}"),
    SecretForm("access_token", r"\b(?:hf|npm|dop_v1|dapi|shpat)_?[A-Za-z0-9]{30,}\b"),
    SecretForm("registry_token", r"\b(?:npm|dop_v1|shpat)_[A-Za-z0-9]{30,}"),
    SecretForm("hub_token", r"\bhf_[A-Za-z0-9]{30,}"),
    SecretForm(
        "cookie_jar", r"\t(?:TRUE|FALSE)\t[0-9]{1,12}\t[^\t\n]{1,80}\t(?P<secret>[^\t\n]{16,})"
    ),
    # As browsers' protocols and recordings of traffic (HAR) write them.
    SecretForm(
        "cookie_jar",
        r"(?i:\bcookies\\?\"\s*:\s*\[[^\[\]]{0,1000}?\bvalue\\?\"\s*:\s*\\?\"(?P<secret>[A-Za-z0-9%+/_.=-]{24,}))",
        looks_random,
    ),
    SecretForm(
        "database_login",
        r"(?m)(?:^|=)[\w.*-]{1,80}:(?:[0-9]{2,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<secret>[^\s:]{6,80})$",
        lambda value: is_password(value),
    ),
    # The password of a login, behind its letter without a space.
    SecretForm(
        "database_login",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\b[^\n;|&]{0,120}\s-p[\"']?(?P<secret>[^\s\"'$<=-][^\s\"']{5,63})",
        lambda value: is_password(value),
    ),
    SecretForm("pypi_token", r"\bpypi-[A-Za-z0-9_-]{40,}", looks_random),
    SecretForm("discord_webhook", r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[\w-]{60,}"),
    SecretForm("vault_token", r"\bhv[sb]\.[A-Za-z0-9_-]{20,}"),
    SecretForm("doppler_token", r"\bdp\.(?:pt|st|ct|sa)\.[A-Za-z0-9_-]{36,}"),
    # The number of an account, which begins with other letters, gives nothing away.
    SecretForm("twilio", r"\bSK[a-z0-9]{32}\b"),
    SecretForm("age_key", r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    SecretForm("mailgun_key", r"\bkey-[0-9a-f]{32}\b"),
    SecretForm("netrc", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S+)"),
    SecretForm("password_hash", r"\$(?:[156y]|2[aby]|argon2id?)\$[./A-Za-z0-9$=,]{20,}"),
    SecretForm("account_file", r"(?m)(?:^|=)root:[^:\s]*:0:0:[^\n]*:/"),
    SecretForm(
        "registry_login", r"\"auth\"\s*:\s*\"(?P<secret>[A-Za-z0-9+/]{8,}={0,2})\"", is_login
    ),
    # Whose service it opens stands before it, and often that it does.
    SecretForm(
        "service_key",
        r"\b[a-z]{2,12}(?:[_-][a-z0-9]{1,8}){0,2}[_-](?:api|key|pat|oat|token|sk|secret|access|personal|apikey)(?:[_-][a-z0-9]{1,8})?[_-](?P<secret>[A-Za-z0-9]{28,})\b",
        lambda value: looks_random(value) and not (value.islower() or value.isupper()),
    ),
    SecretForm(
        "service_key",
        r"\b(?:(?:figd|nfp|ntn|gsk|r8|sntrys|rubygems|sbp|glsa|glc|sgp|rdme|lsv2|whsec|shpca|shppa|shpss|pscale_pw|pscale_tkn|dckr_pat|apify_api|lin_oauth|CLOJARS)_"
        r"|(?:PMAK|CFPAT|NRAK|xkeysib|sq0csp|sq0atp|nvapi|pplx|tvly|pul|xai)-|AT(?:AT|CT)T3xFfGF)"
        r"(?P<secret>[A-Za-z0-9]{20,})",
        looks_random,
    ),
    SecretForm("telegram_token", r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"),
    SecretForm("jwt", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    SecretForm("bearer_token", r"(?i:\bbearer\s+(?P<secret>[A-Za-z0-9._~+/-]{16,}))"),
    SecretForm("basic_auth", r"(?i:\bbasic\s+(?P<secret>[A-Za-z0-9+/]{8,}={0,2}))", is_login),
    SecretForm(
        "url_password",
        r"(?i:://[^\s:/@?#]+:(?P<secret>[^\s@/]+)@)",
        lambda value: (
            value.strip("<>[]{}$").lower() not in {"password", "pass", "passwd", "secret", "pwd"}
            and not is_placeholder(value)
        ),
    ),
    SecretForm("azure_key", r"(?i:\bAccountKey=(?P<secret>[A-Za-z0-9+/=]{40,}))"),
    SecretForm(
        "password",
        r"(?i:(?:^|[\s\"'&?;,{_.#=])(?:password|passwd|passphrase|pwd|db_?pass)[\"']?\s*(?:[=:]|\bis\b)\s*[\"']?"
        r"(?P<secret>[^\s\"'&,;<>(){}]{6,64}))",
        is_password,
    ),
    SecretForm(
        "password",
        r"(?i:<(?:\w+:)?[\w.-]{0,30}(?:password|passwd|passphrase|pwd)(?:\s[^<>]{0,200})?>\s*(?P<secret>[^\s<>]{6,64})\s*</)",
        is_password,
    ),
    SecretForm(
        "assigned_secret",
        r"(?i:<(?:\w+:)?[\w.-]{0,30}(?:secret|private[_-]?key|api[_-]?key|(?:access|auth|refresh)[_-]?token)(?:\s[^<>]{0,200})?>"
        r"\s*(?P<secret>[^\s<>]{12,})\s*</)",
        looks_random,
    ),
    SecretForm(
        "password",
        r"(?i:\b(?:password|passwd|passphrase|pwd) {1,3}(?P<secret>[^\s\"'&,;<>(){}]{8,64}))",
        lambda value: is_password(value) and _is_of_all_kinds(value),
    ),
    SecretForm(
        "session_token",
        r"(?i:(?:^|[\s\"'&?;,{])(?:set-cookie:\s*\w*)?(?:(?:access|auth|refresh|bearer|github|gitlab)[_-]?token|token|session(?:_?id)?|phpsessid|jsessionid"
        r"|connect\.sid)[\"']?\s*[=:]\s*[\"']?(?P<secret>[A-Za-z0-9._~+/-]{24,}))",
        looks_random,
    ),
    SecretForm(
        "assigned_secret",
        # The id of an access key is a name.
        r"(?i:(?:(?:secret|passw(?:or)?d|passphrase|private[_-]?key|api[_-]?key"
        r"|credential|auth[_-]?token)[a-z_]*|(?:master|signing|encryption|decryption|hmac)[_-]?key|access[_-]?key(?:_?[a-hj-z][a-z_]*)?)[\"']?\s*[=:]\s*[\"']?"
        r"(?P<secret>[A-Za-z0-9/+_.!@#$^*~-]{12,}))",
        _is_put,
    ),
)


@lru_cache(maxsize=1)
def own_forms() -> SecretForms:
    """Return the forms of this module, compiled."""
    return SecretForms(OWN_FORMS)


class SecretForms:
    """Forms, compiled for one pass.

    Args:
        forms: any number.

    Raises:
        ValueError: a pattern is no RE2 expression.
    """

    def __init__(self, forms: Iterable[SecretForm]) -> None:
        self._forms = tuple(forms)
        self._set = re2.Set.SearchSet()
        self._patterns: list[re2._Regexp] = []
        for form in self._forms:
            try:
                self._patterns.append(re2.compile(form.pattern))
                self._set.Add(form.pattern)
            except re2.error as error:
                raise ValueError(f"form `{form.kind}` is no RE2 expression") from error
        self._set.Compile()

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the forms."""
        return frozenset(form.kind for form in self._forms)

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and kind of every secret; a token that it is a part of goes with it."""
        short = len(text) <= ONE_PASS
        signed = any(word in text for word in _SIGNED)
        scopes = [one.span() for one in _SCOPE.finditer(text)] if signed else []
        linked = any(host in text for host in _LINKED)
        links = [one.span() for one in _OWN.finditer(text)] if linked else []
        for number in sorted(self._set.Match(text) or ()) if short else range(len(self._forms)):
            form = self._forms[number]
            for match in self._patterns[number].finditer(text):
                group = match.re.groupindex.get("secret", 0)
                if form.confirms is not None and not form.confirms(match.group(group)):
                    continue
                start, end = match.span(group)
                if end - start > _SAME and len(set(text[end - _SAME : end])) == 1:
                    continue
                own = scopes + links if form.kind in _OF_LINKS else scopes
                if any(first <= start and end <= last for first, last in own):
                    continue
                if _is_public(form.kind, text, match.start(), start, end):
                    continue
                if group == 0 and start < end:
                    start -= len(_TOKEN_BEFORE.search(text[:start][-64:])[0])
                    end += len(_TOKEN_AFTER.search(text[end : end + 4096])[0])
                yield start, end, form.kind


def secrets_said(text: str) -> Iterator[str]:
    """Yield the secrets of a text that stand there in clear."""
    for start, end, _ in own_forms().spans(text):
        yield text[start:end]


def _is_public(kind: str, text: str, begin: int, start: int, end: int) -> bool:
    """Return whether what a form found is shown to everybody, or is what everybody knows."""
    if kind == "url_password":
        found = _LOCAL.match(text[begin:])
        return found is not None and found[1] == found[2]
    if kind in {"session_token", "jwt", "ibm_cloud_iam"}:
        value = text.find("=", begin, end) + 1 if kind != "jwt" else start
        before = text[max(0, value - _LINK) : value]
        mailed = kind != "jwt" and _CONFIRMS.search(before) is not None
        if mailed or _is_temporary(before, text) or _opens_its_page(text, start, end):
            return True
    whole = text[start:end] + _TOKEN_AFTER.search(text[end : end + 64])[0]
    if kind == "session_token":
        called = text[begin:start].lower()
        near = text[max(0, begin - _LINK) : end + _LINK]
        is_session = "sess" in called and "token" not in called
        if (is_session and _UUID.search(text[start:end])) or (
            _PROJECT.search(whole) and _OF_EVENTS.search(near)
        ):
            return True
    device = kind == "artifactory" and _DEVICE.search(text[max(0, start - 40) : start + 8])
    return bool(device or _PUBLIC.search(whole))


def _opens_its_page(text: str, start: int, end: int) -> bool:
    """Return whether a token is the parameter of a URL whose page it opens."""
    link = _LINK_WITH_TOKEN.search(text[max(0, start - _LINK) : start])
    token = _TOKEN_OF_PAGE.match(text, start)
    return (
        link is not None
        and token is not None
        and end <= token.end()
        and opens_page(urlsplit(link[1]), token[0])
    )


def _is_temporary(before: str, text: str) -> bool:
    """Return whether what follows is the token of a temporary key, in a URL that it signed."""
    return before.endswith(("?X-Amz-Security-Token=", "&X-Amz-Security-Token=")) and all(
        f"&X-Amz-{name}=" in text for name in ("Credential", "Signature")
    )
