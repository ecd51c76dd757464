"""What must not leave, told by its form: secrets, account numbers, paths.  Pure: no I/O.

Each pattern names a form, never a value.  Where a form has a checksum, the checksum decides.
"""

# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

from typing import Final

import re2

from guard.content.account_numbers import has_account
from guard.content.decoder import content_readings
from guard.content.injection_text import instructs
from guard.content.url_parts import leads_on
from guard.core.bounded_cache import bounded_cache

SECRET: Final = "secret_found"  # noqa: S105  (a reason code)
ACCOUNT: Final = "account_found"
PATH: Final = "sensitive_path"
INJECTION: Final = "injection_text"
HOST: Final = "hidden_in_host"
URL: Final = "hidden_in_url"
NESTED: Final = "nested_encoding"
OVERFLOW: Final = "too_large_to_inspect"
"""Of a text with more in it than the decoder's budget; no rule has to ask for it."""
CODES: Final = (SECRET, ACCOUNT, PATH, INJECTION, HOST, URL, NESTED)
_PATHS: Final = (
    r"/etc/(?:passwd|shadow|sudoers|gshadow|master\.passwd|krb5\.keytab|ssh/)",
    (
        r"(?:^|[/~\s\"'=])\.env(?:\.(?:local|live|dev\w*|prod\w*|stag\w*|test|secrets?|bak|backup"
        r"|old))?(?:$|[\s\"',;)&`])"
    ),
    r"(?:^|[^A-Za-z0-9])\.(?:ssh|aws|kube|docker|gnupg|azure|config/gcloud|config/gh|config/systemd|config/environment\.d)/",
    r"/\.git/(?:config|hooks/)",
    r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b",
    r"/proc/(?:self|[0-9]+)/(?:environ|mem|cmdline|maps)",
    r"\.(?:netrc|pgpass|git-credentials|npmrc|pypirc|my\.cnf|htpasswd|vault-token)\b",
    r"\.tfstate\b",
    r"\.(?:bash|zsh|python|mysql|psql)_hist(?:ory\b|[*?\[])",
    (
        r"\b(?:cp|ln|mv|rsync|scp|tar|zip|7z)\b[^\n;|&]*[/~]\.(?:ssh|aws|kube|gnupg|azure)"
        r"(?:$|[\s\"';|&)])"
    ),
    r"/var/spool/cron|/etc/(?:cron|systemd/|init\.d/|rc\.local|profile|ld\.so\.preload)",
    r"(?:^|[/~\s\"'=])\.(?:bashrc|zshrc|bash_profile|zprofile|profile|config/autostart)\b",
    r"\bauthorized_keys\b|/Library/Launch(?:Agents|Daemons)/|/run/secrets/|/var/run/docker\.sock",
    r"(?i)(?:^|[/\\])(?:credentials\.json|service[_-]account[\w-]*\.json|wallet\.dat|secrets?\.ya?ml|web\.config)\b",
    # Commands that print what a store of secrets holds.
    (
        r"\bkubectl\b[^\n;|]*\bget\s+secrets?\b|\bvault\s+(?:kv\s+get|read)\s|\bdocker\s+inspect\b[^\n]*\bEnv\b"
        r"|\baws\s+(?:secretsmanager\s+get-secret-value|ssm\s+get-parameters?\b[^\n]*--with-decryption)"
        r"|\bgcloud\s+secrets\s+versions\s+access\b"
        r"|\baz\s+keyvault\s+secret\s+show\b|\bgit\s+credential\s+fill\b"
        r"|\b(?:bw|rbw|lpass|keepassxc-cli|gopass|op\s+(?:item|document))\s+(?:export|show|get|clip)\b|(?m:(?:^|[;&|(`])\s*pass\s+show\s)"
        r"|\bsecret-tool\s+(?:lookup|search)\b"
        r"|\bsecurity\s+(?:find-(?:generic|internet)-password|dump-keychain)|\bgpg\b[^\n]*--export-secret|\bop\s+read\s+op:"
    ),
    r"(?i)\bwindows\\+system32\\+config\\+sam\b|\.(?:p12|pfx|kdbx|jks|keystore)\b|(?:key|priv)[\w.-]{0,30}\.pem\b",
)


def _any(patterns: tuple[str, ...], flags: str = "") -> re2._Regexp:
    return re2.compile(flags + "|".join(f"(?:{pattern})" for pattern in patterns))


_FORMS: Final = ((PATH, _any(_PATHS)),)
_PUBLIC_HALF: Final = re2.compile(
    r"(?:[\w~-]+/|/)*(?:\.ssh/(?:\*|[\w-]+)|\bid_(?:rsa|ed25519|ecdsa|dsa)[\w-]*)\.pub"
    r"($|[\s\"',;)&|>])"
)
"""The path of a public key, beside which ``ssh-keygen`` writes the private one."""
_USED: Final = re2.compile(
    r"\bssh-add(?:\s+-\w+)*\s+[~\w./-]+"
    r"|\bchmod\s+(?:-\w+\s+)?0?[0-7]00(?:\s+[~\w./-]+)+"
    r"|(?:^|[\n;&|=]\s*)(?:source|\.)\s+(?:~|/root|/home/\w+)/\.(?:bashrc|zshrc|bash_profile|zprofile|profile)\b"
    r"|\b(?:[Cc]opy|[Rr]ename|cp)(?:\s+-\w+)*\s+[\w./-]*\.env\.(?:example|sample|template|dist)"
    r"\s+(?:to\s+|as\s+|into\s+)?[\w./-]*\.env(?:\.\w+)?"
    r"|\b(?:[Cc]opy|[Rr]ename|[Ss]ave)(?:\s+(?:this|it)(?:\s+file)?)?\s+(?:to|as)\s+[\w./-]*\.env(?:\.local)?"
    r"|\b(?i:never|do not|don't) (?:commit|push|add|check in)\s+[\w./-]*\.env(?:\.\w+)?|\bgit\s+check-ignore(?:\s+-\w+)*\s+[\w./-]+"
    r"|\bssh-keygen(?:\s+-[tbCaON]\s*(?:''|\"\"|[\w@.+-]+)){0,4}\s+-f\s*[~\w./-]+(?:\s+-[tbCaON]\s*(?:''|\"\"|[\w@.+-]+)){0,4}"
    r"|(?:^|[\n;&|=]\s*)(?:(?:source|\.)|test\s+-[efrs])\s+[\w./-]*\.env(?:\.\w+)?"
    r"|>>\s*(?:~|/root|/home/\w+)/\.ssh/known_hosts\b"
    r"|\s-(?:keyout|key-file|cert-file)\s+[\w./-]+"
)
"""Commands that put a file to its use on the spot, look whether there is one or whether it is left
out, close it to others, write a new key to it, or make it of an example; nothing of it leaves."""
_MOUNTED: Final = re2.compile(r"\b[A-Z][A-Z0-9_]*_FILE[\"']?:\s+[\"']?/run/secrets/[\w.-]+")
"""Where an image finds a secret, in the environment of a service of Docker Compose."""
_SPAN: Final = re2.compile(r"(^|[\s(])`([^`\n]{1,120})`($|[\s.,;:)])")
"""Code inside prose, with room around it as a shell's substitutions in a path have none."""
_NAMED: Final = re2.compile(r"(^|[\s(])`([~/.][\w./~-]{1,120})`($|[\s.,;:)])")
"""Of it, what names a file."""
_FENCE: Final = re2.compile(r"(?m)^```\w*$")
_ASKED: Final = frozenset({"q", "query", "question", "search", "search_query", "searchterm"})
_QUESTION: Final = re2.compile(r"^(?:[\w.~'-]+ ){1,24}[\w.~/'-]+(?: [\w.~/'-]+)*\?? ?$")
_TAKES: Final = re2.compile(
    r"(?i)\b(?:cat|read|print|open|show|send|get|give|dump|upload|copy|fetch|post|mail|list|display|return|paste|attach|forward|include|leak|reveal|output|summari[sz]e|contents? of)\b.*(?:/|\.\w|id_)"
)
"""Verbs that ask for what is in a file."""
_FEWEST_WORDS: Final = 4
_IDENTITY: Final = re2.compile(r"\b((?:ssh|scp|sftp)(?:\s+-[A-Za-z]+)*)\s+-i\s*[~\w./-]+")
"""Whose key a login is made with: the key itself does not leave."""
_SEARCHED: Final = re2.compile(
    r"([?&](?:q|query|search|search_query)=)((?:[\w.~-]|%[013-9A-Fa-f][0-9A-Fa-f]|%2[0-35-9A-Fa-f])+"
    r"(?:(?:\+|%20)(?:[\w./~?-]|%2[Ff]|%3[Ff])+){3,})"
)
"""What a search is about, in words, none of which a shell would take for more."""
_REWRITES: Final = re2.compile(
    r"[$`?\[\]{}\\%]|\*(?:$|[^.]|\.(?:$|[^p]))|\b(?:sed|awk|tr|cut|rev|head|basename)\b"
    r"|\b(?:perl|python[23]?|ruby|node|xargs|read|eval|printenv)\b"
    r"|(?:^|[\s;&|(])(?:env|set|export\s+-p|declare(?:\s+-\w+)?)\s*(?:$|[\n;&|>)])"
)
"""What in a command can make another path of the one that it names, or prints what was loaded."""
_ESCAPED: Final = re2.compile(r"%25(?:25)*[0-9A-Fa-f]{2}")
_PADDING: Final = re2.compile(r"(?:%253[Dd]){1,2}($|[&#])")
"""The end of base 64, escaped with what it ends."""
_LETTERS_TWICE: Final = re2.compile(
    r"%25(?:[Cc][3-9A-Fa-f]|[Dd][0-9A-Fa-f])%25[89ABab][0-9A-Fa-f]"
    r"|%25[Ee][0-9A-Fa-f](?:%25[89ABab][0-9A-Fa-f]){2}"
)
"""A letter of UTF-8 that no URL has as it stands, in a query inside a query."""
_SAME_FOLDER: Final = re2.compile(r"/(?:\.?/)+")
"""What a path says twice."""


@bounded_cache(256)
def find_leaks(text: str, name: str = "") -> frozenset[str]:
    """Return the codes of what is in a text, in any of its views; secrets are a detector's.

    Args:
        text: of any length.
        name: of the argument that it is the value of: a name tells an account from a number.
    """
    if "://" in text[:10]:
        text = _SEARCHED.sub(r"\1", text)
    found: set[str] = set()
    texts, complete = content_readings(f"{name}={text}" if name else text)
    if not complete:
        found.add(OVERFLOW)
    for view in texts:
        bare = view.removeprefix(f"{name}=") if name else view
        called = name if len(bare) < len(view) else ""
        if name.lower() in _ASKED and _is_question(bare):
            continue
        runs = _runs(bare, called)
        found.update(code for run in runs for code, form in _FORMS if form.search(run))
        if ACCOUNT not in found and has_account(view):
            found.add(ACCOUNT)
    if instructs(text, deep=True):
        found.add(INJECTION)
    once = _LETTERS_TWICE.sub("", _PADDING.sub(r"\1", text)) if "%25" in text else text
    if _ESCAPED.search(once) and not leads_on(text):
        found.add(NESTED)
    return frozenset(found)


def _runs(text: str, name: str) -> list[str]:
    """Return the readings of a text, without the files that its commands put to their use."""
    if "`" in text:
        text = _unquoted(_FENCE.sub("", text), _NAMED)
    if "_FILE" in text:
        text = _MOUNTED.sub("", text)
    runs = [f"{name}={text}" if name else text]
    runs += [_SAME_FOLDER.sub("/", run) for run in runs if _SAME_FOLDER.search(run)]
    plain = _unquoted(text, _SPAN) if "`" in text else text
    if _REWRITES.search(f"{name}={plain}" if name else plain) is not None:
        return runs
    runs = [_PUBLIC_HALF.sub(r"\1", run) for run in runs] if ".pub" in text else runs
    return [_IDENTITY.sub(r"\1", _USED.sub(" ", run)) for run in runs]


def _unquoted(text: str, form: re2._Regexp) -> str:
    """Return a text with the code in its prose as words of it; two may share what parts them."""
    return str(form.sub(r"\1\2\3", str(form.sub(r"\1\2\3", text))))


def _is_question(text: str) -> bool:
    """Return whether a text is what somebody looks for, in words, and asks for no file."""
    return (
        text.count(" ") >= _FEWEST_WORDS - 1
        and _QUESTION.search(text) is not None
        and _TAKES.search(text) is None
    )
