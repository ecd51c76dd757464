"""Parameters of a URL that a protocol draws, told by those beside them.  Pure: no I/O.

A signature, the code of a login and a request of SAML are longer than ids, at whatever host.  What
explains one is the whole of it: the parameters that come with it, and what it decodes to.  Each is
as long as its protocol makes it, and no readable text; a ``capacity`` rule counts its bits.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import re2

from guard.content.capacity import shown_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from urllib.parse import SplitResult

Pair = tuple[str, str]

_SIGNERS: Final = (
    frozenset({"Signature", "Key-Pair-Id", "Expires"}),
    frozenset({"Signature", "Key-Pair-Id", "Policy"}),
    frozenset({"Signature", "GoogleAccessId", "Expires"}),
)
"""Parameters of signed URLs of CloudFront and, in their first version, of Google Cloud."""
_SIGNATURE: Final = 512
"""Bytes of the longest signature that is in use: of RSA with 4,096 bits."""
_SPELT: Final = str.maketrans("-_~ ", "+//+")
"""How URLs spell base 64; a plus sign that was not escaped reads as a space."""
_SHOWN: Final = 0.6
"""Share of bytes that are shown characters from which they are a text; drawn ones have .37."""
_CODE: Final = re2.compile(
    r"4/[01][A-Za-z0-9_-]{40,110}|[01]\.A[A-Za-z0-9_.-]{40,1000}"
    r"|M\.[A-Z0-9_]{3,20}\.[A-Za-z0-9_.$!*-]{20,60}"
)
"""Codes of Google, Microsoft Entra and Microsoft accounts, told by their head."""
_ASKED: Final = frozenset({"response_type", "client_id", "redirect_uri"})
_ONCE: Final = re2.compile(r"(?:[0-9]{15,20}\.)?[A-Za-z0-9_-]{40,92}={0,2}")
_NONCE: Final = 64
"""Bytes that are drawn once for a login, at most."""
_CLAIMS: Final = frozenset({"url", "path", "iat", "exp", "nbf", "iss", "aud", "key"})
"""What a token says that opens one page."""
_CLAIM, _PAGE, _SCOPE = 40, 8, 120
"""Characters of a claim, and of a part of a signed query, at most; of a page, at least."""
_PART: Final = 40
"""Characters of a part of a code from which it could be a text."""
_POLICY: Final = 700
"""Characters of a policy, coded."""
_SIGNED_BY_AWS: Final = frozenset({"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature"})
_SESSION: Final = 1200
"""Bytes of the token of a temporary key, of no use without the key itself."""
_INTEGRITY: Final = re2.compile(r"sha(?:256-.{43}=?|384-.{64}|512-.{86}(?:==)?)")
"""A digest as subresource integrity writes it (W3C SRI, 3.1)."""
_SAML: Final = frozenset({"SAMLRequest", "SAMLResponse"})
_SAML_LIMIT: Final = 4096
_ATTRIBUTES: Final = r"(?:\s+[\w:.-]{1,60}\s*=\s*[\"'][^\"'<>\s]*[\"'])*\s*/?>"
_SAML_MESSAGE: Final = re2.compile(
    r"^\s*(?:<\?xml[^<>]{0,80}>\s*)?<(?:\w+:)?(?:AuthnRequest|LogoutRequest|LogoutResponse)"
    + _ATTRIBUTES
    + r"(?:\s*(?:[^<>\s]+\s*)?</?(?:\w+:)?[A-Z]\w{1,40}"
    + _ATTRIBUTES
    + r")*\s*$"
)
"""A message of SAML's redirect binding: elements, and no text of several words in them."""


def without_protocols(parts: SplitResult, named: Iterable[Pair]) -> list[Pair]:
    """Return the parameters of a URL without those that a protocol draws.

    Args:
        parts: of the URL.
        named: its parameters, decoded.
    """
    pairs = list(named)
    values = dict(pairs)
    signed = any(names <= values.keys() for names in _SIGNERS)
    by_aws = values.keys() >= _SIGNED_BY_AWS
    returned = values.keys() >= {"code", "state"}
    asked = values.keys() >= _ASKED
    return [
        (name, value)
        for name, value in pairs
        if not (
            (signed and name == "Signature" and _is_drawn(value, _SIGNATURE))
            or (signed and name == "Policy" and _is_policy(parts, value))
            or (returned and name == "code" and _is_code(value))
            or (asked and name in {"state", "nonce"} and _is_once(value))
            or opens_page(parts, value)
            or (name in _SAML and _is_saml(value))
            or (name == "X-Amz-Security-Token" and by_aws and _is_drawn(value, _SESSION))
            or (_INTEGRITY.fullmatch(value) and _is_drawn(value.partition("-")[2], _SIGNATURE))
        )
    ]


def _is_code(value: str) -> bool:
    """Return whether a value is the code of a login, none of whose long parts is a text."""
    return _is_once(value) or (
        _CODE.fullmatch(value) is not None
        and all(_is_run(part, len(part)) for part in value.split(".") if len(part) >= _PART)
    )


def _is_once(value: str) -> bool:
    """Return whether a value is drawn for one login, behind the time where it has one."""
    return _ONCE.fullmatch(value) is not None and _is_run(value.rpartition(".")[2], _NONCE)


def _is_run(value: str, limit: int) -> bool:
    """Return whether a value, but for less than four characters at its end, is drawn."""
    return _is_drawn(value.translate(_SPELT)[: len(value) // 4 * 4], limit)


def opens_page(parts: SplitResult, token: str) -> bool:
    """Return whether a token says itself that it opens the page of this URL, until a time.

    Who holds it has that page and nothing else, so it goes where the page is.
    """
    head, _, rest = token.partition(".")
    coded, _, signature = rest.partition(".")
    if not head.startswith("eyJ") or not _is_run(signature, _SIGNATURE):
        return False
    try:
        said = json.loads(_bytes(coded))
        known = json.loads(_bytes(head)).keys() <= {"alg", "typ", "kid"}
        page, _, query = str(said.get("url") or said["path"]).partition("?")
        asks = parse_qsl(query, strict_parsing=True) if query else []
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    rest_is_known = said.keys() <= _CLAIMS and all(
        isinstance(value, int) or len(str(value)) <= _CLAIM
        for name, value in said.items()
        if name not in {"url", "path"}
    )
    named = len(page) >= _PAGE and parts.path.endswith("/" + page.lstrip("/"))
    signs = all(name.startswith("X-Amz-") and len(value) <= _SCOPE for name, value in asks)
    return known and rest_is_known and named and signs and "exp" in said


def _is_drawn(value: str, limit: int) -> bool:
    """Return whether a value is some bytes in base 64, no more than that, which are no text."""
    raw = _bytes(value)
    return 0 < len(raw) <= limit and shown_bytes(raw) < _SHOWN * len(raw)


def _is_policy(parts: SplitResult, value: str) -> bool:
    """Return whether a value is what CloudFront lets a signer allow: this page, until a time."""
    if len(value) > _POLICY:
        return False
    try:
        [allowed] = json.loads(_bytes(value))["Statement"]
        resource, rest = str(allowed["Resource"]), allowed.keys() - {"Resource", "Condition"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    page = resource.partition("*")[0].partition("?")[0]
    return (
        not rest and page != "" and parts._replace(query="", fragment="").geturl().startswith(page)
    )


def _is_saml(value: str) -> bool:
    try:
        unpacked = zlib.decompressobj(-zlib.MAX_WBITS)
        text = unpacked.decompress(base64.b64decode(value, validate=True), _SAML_LIMIT)
        return unpacked.eof and _SAML_MESSAGE.search(text.decode()) is not None
    except (ValueError, zlib.error):
        return False


def _bytes(value: str) -> bytes:
    spelt = value.rstrip("=_").translate(_SPELT)
    try:
        return base64.b64decode(spelt + "=" * (-len(spelt) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
