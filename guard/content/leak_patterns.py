"""What must not leave, told by its form: secrets, account numbers, commands, paths.  Pure: no I/O.

Each pattern names a form, never a value.  Where a form has a checksum, the checksum decides.
"""

from __future__ import annotations

from typing import Final

import re2

from guard.content.account_numbers import has_account
from guard.content.decoder import content_readings
from guard.content.injection_text import instructs
from guard.content.shell_text import INITS, is_dangerous, readings
from guard.content.url_parts import leads_on
from guard.core.bounded_cache import bounded_cache

SECRET: Final = "secret_found"  # noqa: S105  (a reason code)
ACCOUNT: Final = "account_found"
COMMAND: Final = "dangerous_command"
PATH: Final = "sensitive_path"
INJECTION: Final = "injection_text"
HOST: Final = "hidden_in_host"
URL: Final = "hidden_in_url"
NESTED: Final = "nested_encoding"
OVERFLOW: Final = "too_large_to_inspect"
"""Of a text with more in it than the decoder's budget; no rule has to ask for it."""
CODES: Final = (SECRET, ACCOUNT, COMMAND, PATH, INJECTION, HOST, URL, NESTED)
_PATHS: Final = (
    r"/etc/(?:passwd|shadow|sudoers|gshadow|master\.passwd|krb5\.keytab|ssh/)",
    (
        r"(?:^|[/~\s\"'=])\.env(?:\.(?:local|live|dev\w*|prod\w*|stag\w*|test|secrets?|bak|backup"
        r"|old))?(?:$|[\s\"',;)&])"
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
    r"|(?:^|[\n;&|=]\s*)(?:(?:source|\.)|test\s+-[efrs])\s+[\w./-]*\.env(?:\.\w+)?"
    r"|>>\s*(?:~|/root|/home/\w+)/\.ssh/known_hosts\b"
    r"|\s-(?:keyout|key-file|cert-file)\s+[\w./-]+"
)
"""Commands that put a file to its use on the spot, look whether there is one, close it to others,
write a new key to it, or make it of an example; nothing of it leaves."""
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
        runs = [*readings(bare, called)]
        runs += [_SAME_FOLDER.sub("/", run) for run in runs if _SAME_FOLDER.search(run)]
        if _REWRITES.search(INITS.sub("", view)) is None:
            runs = [_PUBLIC_HALF.sub(r"\1", run) for run in runs] if ".pub" in view else runs
            runs = [_IDENTITY.sub(r"\1", _USED.sub(" ", run)) for run in runs]
        found.update(code for run in runs for code, form in _FORMS if form.search(run))
        if ACCOUNT not in found and has_account(view):
            found.add(ACCOUNT)
        if COMMAND not in found and is_dangerous(bare, called):
            found.add(COMMAND)
    if instructs(text, deep=True):
        found.add(INJECTION)
    if _ESCAPED.search(text) and not leads_on(text):
        found.add(NESTED)
    return frozenset(found)
