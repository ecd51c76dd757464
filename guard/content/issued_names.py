"""Names and parameters that a service issues, and reads alone.  Pure: no I/O.

Nobody can have such a name made for what he wants to tell: it exists because the service drew it,
and one that does not exist tells the service and nobody else.  So it is no hiding place; a
``capacity`` rule counts its bits all the same.  Each form is as narrow as the service makes it, and
bound to the service's own name space.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from typing import TYPE_CHECKING, Any, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from urllib.parse import SplitResult

_NAMES: Final = re2.compile(
    r"^(?:[0-9a-f]{32}\.[a-z0-9]{3}\.[a-z0-9-]+\.eks|[a-z0-9-]+\.[a-z0-9-]+\.(?:elb|es)|[a-z0-9-]+\.elb\.[a-z0-9-]+)"
    r"\.amazonaws\.com$|^(?:[a-z0-9-]{3,63}\.)?[0-9a-f]{32}\.(?:eu\.)?r2\.cloudflarestorage\.com$"
    r"|^[a-z0-9]{32}\.lambda-url\.[a-z0-9-]+\.on\.aws$|^uc[0-9a-f]{20,40}\.(?:dl|previews)\.dropboxusercontent\.com$"
)
"""Kubernetes clusters, load balancers, search domains and functions of AWS: the one label that it
makes up.  Accounts of Cloudflare's store, with a bucket in front: a name there reaches the store
alone.  Downloads of Dropbox."""
_ZONES: Final = (".amazonaws.com", ".cloudflarestorage.com", ".on.aws", ".dropboxusercontent.com")
_DELIVERS: Final = re2.compile(
    r"^(?:"
    r"[a-z0-9-]+\.googlevideo\.com|i\.ytimg\.com|encrypted-tbn[0-3]\.gstatic\.com"
    r"|(?:lh[3-6]|ci[3-6]|doc-[a-z0-9]+-[a-z0-9]+-docs)\.googleusercontent\.com"
    r"|(?:[a-z0-9-]+\.){1,3}(?:fbcdn\.net|cdninstagram\.com)|media\.licdn\.com"
    r"|(?:pbs|video|abs)\.twimg\.com|(?:i|v|preview|external-preview)\.redd\.it"
    r"|i\.pinimg\.com|[a-z0-9-]+\.mzstatic\.com|m\.media-amazon\.com|[fi]\.vimeocdn\.com"
    r"|(?:i|mosaic)\.scdn\.co|image-cdn-[a-z]+\.spotifycdn\.com|i1\.sndcdn\.com"
    r"|[a-z0-9]+\.(?:dl|previews)\.dropboxusercontent\.com|dl\.boxcloud\.com"
    r"|cdn\.discordapp\.com|media\.discordapp\.net|files\.slack\.com|avatars\.slack-edge\.com"
    r"|(?:private-user-images|objects|avatars|media|user-images|release-assets|github-cloud)\.githubusercontent\.com|pkg-containers\.githubusercontent\.com"
    r"|replicate\.delivery|(?:v[0-9]\.)?fal\.media|files\.oaiusercontent\.com"
    r"|cdn-lfs[a-z0-9-]*\.hf\.co|cas-bridge\.xethub\.hf\.co"
    r"|production\.cloudflare\.docker\.com|upload\.wikimedia\.org|images\.unsplash\.com"
    r")$"
)
"""Hosts that deliver what their owner keeps, by names that it drew, and take nothing."""
_PARAMETERS: Final = tuple(
    (re2.compile(rf"^(?:{hosts})$"), names, re2.compile(rf"^(?:{form})$"))
    for hosts, names, form in (
        # The passcode of a meeting, in the link that invites to it.
        (r"(?:[a-z0-9-]+\.)?zoom\.us", {"pwd"}, r"[A-Za-z0-9_-]{1,48}={0,2}(?:\.1)?"),
        # An event, with the calendar that it is in.
        (
            r"calendar\.google\.com|www\.google\.com",
            {"eid", "tok"},
            r"[A-Za-z0-9_-]{20,180}={0,2}",
        ),
        # An application that asks for a login, and the place in a list of pages.
        (
            r"(?:login|test|[a-z0-9-]+\.my)\.salesforce\.com",
            {"client_id"},
            r"3MVG9[A-Za-z0-9._]{60,90}",
        ),
        (
            r"graph\.microsoft\.com",
            {"$skiptoken", "$deltatoken", "token"},
            r"[A-Za-z0-9_.-]{20,600}={0,2}",
        ),
        # A sign-in that goes on, and an upload that does.
        (r"login\.microsoftonline\.com", {"ctx"}, r"rQQIA[A-Za-z0-9_-]{40,1000}={0,2}"),
        (r"storage\.googleapis\.com", {"upload_id"}, r"A[A-Za-z0-9_-]{60,250}"),
        # The search that a page of a product was opened from.
        (
            r"www\.amazon\.(?:com|[a-z]{2}|co\.[a-z]{2}|com\.[a-z]{2})",
            {"dib"},
            r"eyJ2IjoiMSJ9\.[A-Za-z0-9_-]{20,700}\.[A-Za-z0-9_-]{40,50}",
        ),
        # A link of a mail that Proofpoint's service has rewritten.
        (
            r"urldefense\.(?:proofpoint\.)?com",
            {"d", "c", "r", "m", "s", "e"},
            r"[A-Za-z0-9_-]{0,64}={0,2}",
        ),
        (r"[a-z0-9-]+\.atlassian\.net", {"atlOrigin"}, r"eyJpIjoi[A-Za-z0-9_-]{40,80}={0,2}"),
        # A link of a mail whose clicks are counted, and a download that a login has opened.
        (r"u[0-9]{4,12}\.ct\.sendgrid\.net", {"upn"}, r"u001\.[A-Za-z0-9-]{40,990}"),
        (
            r"[a-z0-9-]+\.sharepoint\.com",
            {"tempauth"},
            r"v1\.[A-Za-z0-9_-]{40,990}(?:\.[A-Za-z0-9_-]{0,400}){0,2}",
        ),
        # What a search of Google was typed as and led to.
        (
            r"www\.google\.(?:com|[a-z]{2}|co\.[a-z]{2}|com\.[a-z]{2})",
            {"gs_lp", "ved", "sxsrf", "iflsig", "sca_upv"},
            r"[A-Za-z0-9_:-]{8,500}={0,2}",
        ),
        (
            r"[a-z0-9-]+\.adyen\.com",
            {"sessionResult", "redirectResult"},
            r"X[A-Za-z0-9]{3,12}![A-Za-z0-9_-]{20,900}",
        ),
        # A login that an application of ASP.NET has sealed, where it is asked for.
        (
            (
                r"login\.microsoftonline\.com|login\.live\.com|accounts\.google\.com|github\.com"
                r"|appleid\.apple\.com|(?:[a-z0-9-]+\.){1,2}(?:okta|auth0|onelogin)\.com"
            ),
            {"state"},
            r"CfDJ8[A-Za-z0-9_-]{40,600}",
        ),
    )
)
"""Host, parameters, and what their values are made of."""
_PATHS: Final = tuple(
    (re2.compile(rf"^(?:{hosts})$"), re2.compile(f"^(?:{form})$"))
    for hosts, form in (
        (
            r"docs\.google\.com|drive\.google\.com",
            r".*/(?:d(?:/e)?|folders)/([A-Za-z0-9_-]{25,60})(?:/.*)?",
        ),
        (
            r"(?:sheets|docs|slides|www)\.googleapis\.com",
            r"(?:/upload)?(?:/drive)?/v[1-9]/(?:spreadsheets|documents|presentations|files)/([A-Za-z0-9_-]{25,60})(?:[:/].*)?",
        ),
        (
            r"(?:gmail|www)\.googleapis\.com",
            r"/gmail/v1/users/[^/]+/messages/[0-9a-f]{16}/attachments/(ANGjdJ[A-Za-z0-9_-]{30,500})",
        ),
        (r"[a-z0-9-]+\.sharepoint\.com", r"/:[a-z]:/[a-z](?:/[\w.-]+){0,3}/(E[A-Za-z0-9_-]{45})"),
        (
            r"outlook\.(?:office365|office|live)\.com",
            r"/(?:mail|calendar)/(?:[a-z]+/){0,2}(?:id|item)/(AA[MQ]k[A-Za-z0-9_%+=-]{40,220})",
        ),
        (
            r"lh[3-6]\.googleusercontent\.com",
            r"/(?:a|a-|ogw)/(AC[A-Za-z0-9_-]{30,90}|AF[A-Za-z0-9_-]{30,90})(?:=[a-z0-9-]{1,20})?",
        ),
        (
            r"(?:checkout|api)\.stripe\.com",
            r"/(?:c/pay|v1/checkout/sessions)/(cs_(?:live|test)_[A-Za-z0-9]{58,66})(?:/.*)?",
        ),
        (r"(?:[a-z0-9-]+\.)?zoom\.us", r"/rec/(?:share|play)/([A-Za-z0-9_.-]{40,140})"),
        (
            r"objectstorage\.[a-z0-9-]+\.oraclecloud\.com",
            r"/p/([A-Za-z0-9_-]{64})/n/[a-z0-9]+/b/.*",
        ),
        # Answers to what somebody asked a bot, which a token belongs to for 15 minutes.
        (
            r"discord(?:app)?\.com",
            r"/api/v[0-9]+/(?:interactions|webhooks)/[0-9]{17,20}/(aW50ZXJhY3Rpb246[A-Za-z0-9_-]{40,260})/.*",
        ),
        # Where a browser waits for messages.
        (r"web\.push\.apple\.com", r"/(Q[A-Za-z0-9_-]{60,260})"),
        (
            r"updates\.push\.services\.mozilla\.com",
            r"/wpush/v[12]/(gAAAA[A-Za-z0-9_-]{100,300})",
        ),
        # The project whose pages show it to every visitor.
        (
            r"(?:us|eu)(?:-assets)?\.i\.posthog\.com",
            r"/(?:array|decide)/(phc_[A-Za-z0-9]{36,50})(?:/.*)?",
        ),
        # A transaction on a public chain, whose number everybody reads.
        (
            r"explorer\.solana\.com|(?:www\.)?(?:solscan\.io|solana\.fm)",
            r"/tx/([1-9A-HJ-NP-Za-km-z]{86,88})",
        ),
        (
            r"(?:invoice|pay)\.stripe\.com",
            r"/(?:i|receipts)/acct_\w{16,24}/((?:live|test)_YWNjdF8[A-Za-z0-9]{40,90})",
        ),
    )
)
"""Host, and the path whose group is an id as long as a key."""
_SEGMENTS: Final = tuple(
    (host, re2.compile(f"^(?:{form})$"))
    for host, form in (
        # Mail, folders, events and what is attached to them, each below the other.
        ("graph.microsoft.com", r"AA[MQ]k[A-Za-z0-9_+=-]{40,220}"),
        ("outlook.office.com", r"AA[MQ]k[A-Za-z0-9_+=-]{40,220}"),
    )
)
"""Host, and the form of every segment that is an id."""
_MEETING: Final = re2.compile(r"^19:meeting_([A-Za-z0-9+/=]{48})@thread\.v2$")
_GUID: Final = re2.compile(r"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_OCSP_LIMIT: Final = 255
"""Characters of a certificate's status request that may be part of a URL (RFC 5019, 5)."""
_SHA1: Final = 20


def is_issued(host: str) -> bool:
    """Return whether a host name is one that its provider makes up, with nothing in front of it."""
    return host.endswith(_ZONES) and _NAMES.search(host) is not None


_CLICK: Final = re2.compile(
    r"^EAIaIQobChMI[A-Za-z0-9_-]{18,24}E[AQ][A-Za-z0-9]{1,2}AS[A-Za-z]{2}Eg[A-Za-z0-9_-]{3,6}[A-Z]_BwE$"
)
"""An advertisement that somebody clicked: what of it is not fixed is as long as an id."""
_DRAWS: Final = re2.compile(
    r"^(?:mermaid\.ink|kroki\.io|(?:www\.)?plantuml\.com|quickchart\.io|latex\.codecogs\.com)$"
)
"""Services that draw what they are asked for and show it to nobody else."""


def only_delivers(host: str) -> bool:
    """Return whether whoever asks a host for what does not exist tells its owner alone."""
    return _DELIVERS.search(host) is not None


def draws_what_it_is_told(host: str) -> bool:
    """Return whether a host makes a picture of its path and query, for who asks alone."""
    return _DRAWS.search(host) is not None


def is_click(name: str, value: str) -> bool:
    """Return whether a parameter says by which advertisement somebody came."""
    return name in {"gclid", "wbraid", "gbraid"} and _CLICK.search(value) is not None


def is_own_parameter(host: str, name: str, value: str) -> bool:
    """Return whether a parameter of a URL is one that its host has issued, as long as those are."""
    return any(
        name in names and hosts.search(host) and form.search(value)
        for hosts, names, form in _PARAMETERS
    )


def without_own_ids(parts: SplitResult, segments: Sequence[str]) -> tuple[str, ...]:
    """Return the segments of a URL's path without the ids that its host has issued.

    Args:
        parts: of the URL.
        segments: of its path, decoded.
    """
    host = parts.hostname or ""
    for hosts, form in _PATHS:
        found = form.search(parts.path) if hosts.search(host) else None
        if found is not None:
            return tuple(
                one
                for one in parts.path.split("/")
                if one.partition("=")[0].partition(":")[0] != found[1]
            )
    for own, form in _SEGMENTS:
        if host == own:
            return tuple(one for one in segments if form.search(one) is None)
    if host == "teams.microsoft.com":
        return tuple(one for one in segments if not _is_meeting(one))
    if not parts.query and segments and _asks_status(segments):
        return ()
    return tuple(parts.path.split("/"))


def _is_meeting(segment: str) -> bool:
    """Return whether a segment names a meeting of Teams by its number, in base 64."""
    found = _MEETING.search(segment)
    if found is None:
        return False
    try:
        spelt = base64.b64decode(found[1], validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return _GUID.search(spelt) is not None


def _asks_status(segments: Sequence[str]) -> bool:
    """Return whether a path is the request for one certificate's status, by GET (RFC 6960, A.1)."""
    coded = "/".join(segments[next((n for n, s in enumerate(segments) if s[:2] in _DER), 0) :])
    if len(coded) > _OCSP_LIMIT or coded[:2] not in _DER:
        return False
    # It takes a while to import, and hardly any process needs it.
    ocsp: Any = importlib.import_module("cryptography.x509.ocsp")
    try:
        raw = base64.b64decode(coded, validate=True)
        asked = ocsp.load_der_ocsp_request(raw)
    except (binascii.Error, ValueError):
        return False
    return len(asked.issuer_name_hash) == len(asked.issuer_key_hash) == _SHA1


_DER: Final = frozenset({"MD", "ME", "MF", "MG", "MH"})
"""How a sequence of 48 to 127 bytes begins in base 64."""
