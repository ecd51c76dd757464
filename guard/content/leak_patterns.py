"""What must not leave, told by its form: secrets, account numbers, commands, paths.  Pure: no I/O.

Each pattern names a form, never a value.  Where a form has a checksum, the checksum decides.
"""

from __future__ import annotations

import base64
import json
from itertools import combinations, islice, pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import re2

from guard.content.account_numbers import has_account
from guard.content.capacity import run_bits
from guard.content.decoder import content_readings, decoded, decoded_label
from guard.content.fragment_joining import members
from guard.content.injection_text import instructs
from guard.content.issued_names import is_issued, is_own_parameter, without_own_ids
from guard.content.letters import fold
from guard.content.own_codings import is_turned_sentence, respelt
from guard.content.protocol_parameters import without_protocols
from guard.content.secret_forms import BITS, entropy, own_forms
from guard.content.shell_text import INITS, is_dangerous, readings
from guard.core.argument_texts import argument_texts
from guard.core.bounded_cache import bounded_cache
from guard.core.network_addresses import address_kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

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
    r"|\bcp(?:\s+-\w+)*\s+[\w./-]*\.env\.(?:example|sample|template|dist)\s+[\w./-]*\.env(?:\.\w+)?"
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
_ADDRESS: Final = re2.compile(r"(?:^|[.-])([0-9]{1,3}(?:[.-][0-9]{1,3}){3})[.-][a-z]")
"""An address as part of a name: wildcard zones resolve such names to it."""
_EXAMPLES: Final = ("192.0.2.", "198.51.100.", "203.0.113.")
"""Networks of documentation (RFC 5737): nobody is there."""
_REGISTERED: Final = 2
"""Labels at the end of a name that somebody had to register, where it is not three."""
_SECOND_LEVELS: Final = frozenset(
    {"co", "com", "org", "net", "gov", "gob", "ac", "edu", "or", "ne"}
)
"""Labels below a country's that names are registered under (`example.co.uk`)."""
_ASKED: Final = frozenset({"name", "host", "hostname", "domain", "fqdn", "qname"})
"""Parameters that name what a resolver is asked for."""
_NAME: Final = re2.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63}){2,}\.?")
_DNS_HEAD: Final = 12
"""Bytes before the question of a message of DNS."""
_COUNTRY: Final = 2
"""Letters of a country's label."""
_HEX_RUN: Final = re2.compile(r"[0-9a-f]+")
_DRIPPED: Final = 4
_MANY_RUNS: Final = 3
_KEY_BITS: Final = 90
"""Of a key, told by drawn runs of two labels, or of three parts of one; ids of services have one
run, or are hexadecimal."""
_LONG_LABEL: Final = 16
_LONG_PARTS: Final = 20
_CHANGES: Final = 4
_ROOM: Final = 60
"""Characters below the registered name that are more than a name's."""
_RUN_LABELS: Final = 8
"""Labels of which every run is read as one word of a coding."""
_HEX_LABEL: Final = re2.compile(r"(?:[0-9a-f]{2}){2,}")
_SAME_FOLDER: Final = re2.compile(r"/(?:\.?/)+")
"""What a path says twice."""
_CODES: Final = re2.compile(r"[0-9]{2,3}(?:-[0-9]{2,3})+")
_THREES: Final = re2.compile(r"(?:[01][0-9]{2}){6,}")
_FEWEST_CODES: Final = 6
_CONTENT_ID: Final = 59
_DIGEST: Final = 32
_DIGEST64: Final = 43
_SHA256: Final = bytes((0x12, _DIGEST))
_DIGESTS: Final = frozenset({"code_challenge", "sig", "sdata"})
"""PKCE (RFC 7636, 4.2), shared access signatures of Azure, Safe Links: 32 bytes, 3 more than the
longest id that passes under any name.  A ``capacity`` rule counts them."""
_PROOF: Final = re2.compile(
    r"/(?:\.well-known/acme-challenge"
    r"|(?:[\w-]{1,40}/){0,4}(?:(?:re)?set|verify|confirm|activate|accept|magic|unsubscribe|recover|invitations?|invite|join)"
    r"(?:[_-](?:e?-?mail|password|account|link|address|registration))?)/([A-Za-z0-9_-]{43})/?"
)
"""Path whose end proves who holds a name (RFC 8555, 8.3) or a mailbox: as long as a digest."""
_URL_SAFE: Final = str.maketrans("+/-_", "xxxx")
_SHOWN: Final = 0.7
"""Share of bytes that are shown characters from which a digest is a text; drawn ones have .37."""
_PERSONAL_CODE: Final = re2.compile(
    r"\b(?:pin|otp|cvv|cvc|passcode)[ _]?[0-9]{3,8}\b"
    r"|\b[0-9]{3,8}[ _](?:pin|otp|cvv|cvc|passcode)\b"
    r"|\b(?:pw|pwd|passwd|pass|password)[ _](?:is[ _])?(?:[a-z]+[0-9]|[0-9]+[a-z])"
    r"|(?:^|[\n ])[0-8][0-9]{2}-[0-9]{2}-[0-9]{4}(?:$|[\n ])"
)
"""What lets somebody in, beside what says so, or a label that is a social security number."""
_SPACE, _DELETE = 32, 127
"""ASCII that is shown."""
_SENTENCE_WORDS: Final = 5
_GRAMMAR: Final = frozenset(
    {"the", "a", "an", "is", "are", "was", "were", "will", "has", "have", "had", "not", "no", "and"}
    | {"or", "of", "on", "at", "in", "to", "for", "from", "with", "by", "than", "that", "this"}
    | {"it", "he", "she", "we", "they", "our", "his", "her", "their", "be", "please", "does", "did"}
)
_LINKING: Final = frozenset(
    {"the", "a", "an", "and", "or", "of", "on", "at", "in", "to", "for", "from", "with", "by", "no"}
)
"""Those of them that names of sites have as well."""
_HEX_PARTS: Final = 12
"""Hexadecimal digits in several labels that are no numbers of something."""
_VOWELS: Final = frozenset("aeiouy")
_SPOKEN: Final = 0.17
"""Share of vowels below which a long run of letters is no word."""
_TOKEN: Final = re2.compile(r"[A-Za-z0-9+_=-]{24,}")
_DRAWN: Final = 40
"""Characters of a part of a URL that may be an id, drawn at random."""
_DRAWN_BITS: Final = 4.4
_LINK: Final = re2.compile(r"https?://[^\s<>\"'`)\]}|\\]{8,}")
_LINKS: Final = 64
"""Links of one text that are read."""
_CASES: Final = 64
"""Letters whose cases may be bits, where they change more often than words begin."""
_PARTING: Final = re2.compile(r"[_+-]")
_PART: Final = re2.compile(r"[A-Za-z]?[a-z]+|[A-Z]+|[0-9]+")
"""Words and numbers between hyphens, underscores and plus signs: those of a page's name."""
_WORDS: Final = re2.compile(r"[^\W\d_]{2,}[ ,;:.]+[^\W\d_]{2,}[ ,;:.]+[^\W\d_]{2,}")
_TWICE: Final = 16
"""Characters of a coding inside a coding, at least."""
_JSON_CODED: Final = ("ey", "Wy", "Wz")
"""How an object or a list begins in base 64."""
_CURSOR: Final = 160
"""Characters of the longest place in a list of pages that an API gives."""
_KEY_ID: Final = re2.compile(r"a(?:kia|sia)[a-z0-9]{16}")


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
    if _ESCAPED.search(text) and not _leads_on(text):
        found.add(NESTED)
    return frozenset(found)


@bounded_cache(1024)
def hides_data(host: str) -> bool:
    """Return whether labels of a host name are data in a coding, or a private address, no name."""
    if is_issued(host.lower()):
        return False
    labels = _without_content_id(fold(host).lower().split("."))
    below = labels[: -_registered(labels)]
    if any(map(decoded_label, (*labels, *_runs(below)))):
        return True
    if any(map(_is_coded, below)) or _is_sentence(below):
        return True
    if any(_is_private(match.group(1)) for match in _ADDRESS.finditer(host)):
        return True
    if _fills(below) or _is_drip(below) or is_turned_sentence(" ".join(below)):
        return True
    drawn = [label for label in labels if _is_mixed(label)]
    in_parts = len(drawn) > 1 and sum(map(len, drawn)) >= _LONG_PARTS
    return in_parts or any(
        (len(label) >= _LONG_LABEL and entropy(label) >= BITS) for label in drawn
    )


def names_asked(url: str) -> Iterator[str]:
    """Yield the host names that a URL asks a resolver for.

    In words, as resolvers with JSON answers take them, or as a message of DNS (RFC 8484, 4.1).
    """
    try:
        named = parse_qsl(urlsplit(url).query)
    except ValueError:
        return
    for name, value in named:
        if name in _ASKED and _NAME.fullmatch(value):
            yield value.rstrip(".")
        elif name == "dns":
            yield from _question(value)


def _question(value: str) -> Iterator[str]:
    """Yield the name in the question of a message of DNS (RFC 1035, 4.1.2)."""
    try:
        message = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))[_DNS_HEAD:]
    except ValueError:
        return
    labels = []
    while message and 0 < message[0] < len(message):
        labels.append(message[1 : 1 + message[0]].decode("latin-1"))
        message = message[1 + message[0] :]
    if labels:
        yield ".".join(labels)


def _registered(labels: list[str]) -> int:
    """Return how many labels at the end somebody had to register before anybody could ask."""
    under = len(labels) > _REGISTERED and len(labels[-1]) == _COUNTRY
    return _REGISTERED + (under and labels[-2] in _SECOND_LEVELS)


def _without_content_id(labels: list[str]) -> list[str]:
    """Return the labels of a name without the digest that names what an IPFS gateway is asked for.

    It says no more than a path of as many drawn characters, which :func:`carries` lets pass as an
    id; digests that are text stay.  A ``capacity`` rule counts both.
    """
    gateway = len(labels) > _REGISTERED + 1 and labels[1] in {"ipfs", "ipns"}
    return labels[2:] if gateway and _is_content_id(labels[0]) else labels


def _is_content_id(label: str) -> bool:
    """Return whether a label is a CID of version 1 in base 32, of a SHA-256 (multiformats.io)."""
    if len(label) != _CONTENT_ID or not label.startswith("b"):
        return False
    try:
        raw = base64.b32decode(label[1:].upper() + "=" * (-len(label[1:]) % 8))
    except ValueError:
        return False
    shown = sum(_SPACE <= byte < _DELETE for byte in raw[-_DIGEST:])
    return raw[0] == 1 and raw[2:4] == _SHA256 and shown <= _SHOWN * _DIGEST


def _is_coded(label: str) -> bool:
    """Return whether a label is text in a coding behind what parts it, counts it or turns it."""
    bare = label.removeprefix("xn--")
    pieces = bare.split("-")
    spelt = {bare, "".join(pieces), "".join(pieces[1:]), bare[::-1]}
    return any(map(decoded_label, spelt - {label})) or _is_spelt_in_codes(pieces, bare)


def _is_spelt_in_codes(pieces: list[str], label: str) -> bool:
    """Return whether a label spells letters by their numbers, parted or in threes."""
    if not _CODES.fullmatch(label) and not _THREES.fullmatch(label):
        return False
    codes = pieces if len(pieces) > 1 else [label[at : at + 3] for at in range(0, len(label), 3)]
    return len(codes) >= _FEWEST_CODES and all(_SPACE <= int(code) < _DELETE for code in codes)


def _is_sentence(labels: list[str]) -> bool:
    """Return whether labels read as a sentence: names of hosts have hardly a word of grammar."""
    words = [word for label in labels for word in label.split("-")]
    grammar = _GRAMMAR.intersection(words)
    return len(words) >= _SENTENCE_WORDS and len(grammar) > 1 and not grammar <= _LINKING


def _runs(labels: list[str]) -> Iterator[str]:
    """Yield labels that follow each other, joined."""
    few = labels[:_RUN_LABELS]
    for begin, end in combinations(range(len(few) + 1), 2):
        if end - begin > 1:
            yield "".join(few[begin:end])


def _fills(labels: list[str]) -> bool:
    """Return whether labels below a registered name are coded in parts, numbers, or too much."""
    coded = "".join(label for label in labels if _HEX_LABEL.fullmatch(label))
    parts = sum(map(bool, map(_HEX_LABEL.fullmatch, labels)))
    in_hex = parts > 1 and len(coded) >= _HEX_PARTS and not (coded.isdigit() or coded.isalpha())
    return (
        (parts > 0 and decoded_label(coded))
        or in_hex
        or sum(map(len, labels)) >= _ROOM
        or any(map(_is_unspoken, labels))
        or _speaks(" ".join(labels))
    )


def _leads_on(url: str) -> bool:
    """Return whether all that a URL has coded twice are whole URLs, where somebody is led on.

    A login leads back to a page, whose own parameter names another page.
    """
    try:
        bare = urlsplit(url)._replace(query="").geturl()
        inner = [value for _, value in parse_qsl(urlsplit(url).query)]
        further = [value for one in inner for _, value in parse_qsl(urlsplit(one).query)]
        rest = [urlsplit(one)._replace(query="").geturl() for one in inner]
    except ValueError:
        return False
    led = [one for one in further if one.startswith(("https://", "http://"))]
    twice = [one for one in (bare, *rest) if "%" in one]
    return not twice and bool(led) and not any("%" in one for one in further)


def _speaks(words: str) -> bool:
    """Return whether the labels of a name, as words, are a secret or the number of an account."""
    spelt = "\n".join((words, words.replace("-", " "), words.replace("-", "_")))
    return (
        has_account(spelt)
        or _PERSONAL_CODE.search(spelt) is not None
        or any(True for _ in own_forms().spans(spelt))
    )


def _is_drip(labels: list[str]) -> bool:
    """Return whether several runs of labels look drawn, and together could tell a key."""
    drawn = [run for label in labels for run in label.split("-") if run_bits(run) > len(run) * 3]
    told = [run for run in drawn if len(run) >= _DRIPPED and not _HEX_RUN.fullmatch(run)]
    if any(len(run) >= _DIGEST and not _HEX_RUN.fullmatch(run) for run in drawn):
        return True
    several = len({label for label in labels if any(run in label for run in told)})
    return (several > 1 or len(told) >= _MANY_RUNS) and sum(map(run_bits, told)) >= _KEY_BITS


def _is_unspoken(label: str) -> bool:
    """Return whether a long run of letters has hardly a vowel, so that it is no word."""
    vowels = sum(char in _VOWELS for char in label)
    return len(label) >= _LONG_LABEL and label.isalpha() and vowels < _SPOKEN * len(label)


def carries(url: str) -> bool:
    """Return whether a part of a URL is a sentence in a coding, or longer than any id.

    What a destination can be told in a coding of one's own is bounded by a ``capacity`` rule.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    whole = parse_qsl(parts.query, keep_blank_values=True)
    named = without_protocols(parts, whole)
    if len(named) < len(whole):
        parts = parts._replace(query=urlencode(named))
        url = parts.geturl()
    if _tells(url, parts):
        return True
    host = parts.hostname or ""
    digests = _digests({name for name, _ in whole})
    named = [one for one in named if not is_own_parameter(host, *one)]
    values = [value for _, value in named]
    drawn = [value for name, value in named if not (name in digests and _is_digest(value))]
    # What a service issued it tells nobody else.
    path = without_own_ids(parts, [unquote(part) for part in parts.path.split("/") if part])
    if _PROOF.fullmatch(parts.path):
        path = path[:-1]
    tokens = [
        token
        for piece in (*path, *drawn)
        for token in _TOKEN.findall(piece.rpartition(".")[0] if piece.count(".") == 1 else piece)
    ]
    leaves = [leaf for token in tokens for leaf in _leaves(token)]
    return any(map(_is_drawn, leaves)) or _is_coded_sentence((*tokens, *leaves, *values))


def _leaves(token: str) -> Iterator[str]:
    """Yield names and values of the JSON in base 64 that a token is, as cursors of pages are.

    A token of another kind is its own leaf, and so is JSON with more in it than a cursor has.
    """
    coded = token.startswith(_JSON_CODED) and len(token) <= _CURSOR
    texts = [text for text in decoded(token) if text[:1] in "{["] if coded else []
    try:
        documents = [json.loads(text) for text in texts]
    except ValueError:
        documents = []
    if not documents:
        yield token
    for document in documents:
        yield from (item.text for item in argument_texts(document))


def links_that_tell(text: str) -> bool:
    """Return whether a URL inside a text says a sentence in a coding, to whoever serves it.

    How long its parts are says nothing here: links that people pass on have long ids.
    """
    if "://" not in text:
        return False
    for link in islice((found.group() for found in _LINK.finditer(text)), _LINKS):
        try:
            parts = urlsplit(link)
            values = [value for _, value in parse_qsl(parts.query)]
        except ValueError:
            continue
        if _tells(link, parts) or _is_coded_sentence((*parts.path.split("/"), *values)):
            return True
    return False


def _is_coded_sentence(words: tuple[str, ...]) -> bool:
    """Return whether one of some words is a sentence in a coding that programs exchange.

    What is coded twice need not be one: no program does that to its own ids.
    """
    read = [text for word in words for text in decoded(word)]
    return any(_WORDS.search(text) or _is_coded_again(text) for text in read)


def _is_coded_again(text: str) -> bool:
    return len(text) >= _TWICE and _TOKEN.fullmatch(text) is not None and any(decoded(text))


def _tells(url: str, parts: SplitResult) -> bool:
    """Return whether the parts of a URL, each or joined, say a sentence that somebody disguised."""
    segments = [unquote(part) for part in parts.path.split("/") if part]
    named = parse_qsl(parts.query, keep_blank_values=True)
    rows = (segments, [value for _, value in named], [name for name, _ in named])
    whole = ["".join(row) for row in rows if len(row) > 1]
    pieces = dict.fromkeys((*members(url), *whole, unquote(parts.path)))
    return any(
        is_turned_sentence(text) or any(_says(spelt) for spelt in respelt(text)) for text in pieces
    )


def _says(text: str) -> bool:
    return _WORDS.search(text) is not None or is_turned_sentence(text)


def _digests(names: set[str]) -> frozenset[str]:
    """Return the parameters of a query that may be as long as a SHA-256, given all that it has.

    What a request of OAuth and its answer draw once (RFC 6749, 4.1; OpenID Connect, 3.1) as well.
    """
    asks, answers = names >= {"response_type", "client_id"}, names >= {"code", "state"}
    return _DIGESTS | ({"state", "nonce"} if asks else {"state"} if answers else set())


def _is_digest(value: str) -> bool:
    """Return whether a value is as long as a SHA-256 in base 64."""
    bare = value.rstrip("=").translate(_URL_SAFE)
    return len(bare) == _DIGEST64 and bare.isascii() and bare.isalnum()


def _is_drawn(token: str) -> bool:
    kinds = (
        any(map(str.isupper, token)),
        any(map(str.islower, token)),
        any(map(str.isdigit, token)),
    )
    drawn = "".join(part for part in _PARTING.split(token) if not _PART.fullmatch(part))
    cases = [letter.isupper() for letter in drawn if letter.isalpha()]
    turns = sum(a != b for a, b in pairwise(cases))
    if len(cases) >= _CASES and turns * 3 >= len(cases):
        return True
    return len(drawn) >= _DRAWN and all(kinds) and entropy(drawn) >= _DRAWN_BITS


def _is_mixed(label: str) -> bool:
    """Return whether letters and digits change places as they do in no name, or it is a key id."""
    changes = sum(a.isdigit() != b.isdigit() for a, b in pairwise(label))
    return bool(_KEY_ID.fullmatch(label)) or (label.isalnum() and changes >= _CHANGES)


def _is_private(spelt: str) -> bool:
    try:
        kind = address_kind(spelt.replace("-", "."))
    except ValueError:
        return False
    return kind not in {"public", "reserved"} and not spelt.replace("-", ".").startswith(_EXAMPLES)
