"""Codings that services decode, as functions that encode a text."""

import base64
import gzip
import html
import json
import quopri
import zlib
from email.mime.text import MIMEText
from urllib.parse import urlencode

import brotli
import zstandard

CONFUSABLE = str.maketrans("aceopxy", "\u0430\u0441\u0435\u043e\u0440\u0445\u0443")
ASCII = range(33, 127)


def base64_of(raw):
    """Return bytes in base64."""
    return base64.b64encode(raw).decode()


def json_escapes(text):
    """Return each unit of UTF-16 as an escape."""
    wide = text.encode("utf-16-be")
    return "".join(f"\\u{wide[at : at + 2].hex()}" for at in range(0, len(wide), 2))


def moved(text, offset):
    """Return the text in characters that Unicode has as copies of ASCII."""
    return "".join(chr(ord(char) + offset) if ord(char) in ASCII else char for char in text)


CODINGS = {
    "JSON": lambda text: json.dumps({"to": text}),
    "JSON escapes": json_escapes,
    "form": lambda text: urlencode({"to": text}),
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "XML": lambda text: f"<to>{html.escape(text)}</to>",
    "quoted-printable": lambda text: quopri.encodestring(text.encode(), quotetabs=True).decode(),
    "quoted letters": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "MIME": lambda text: MIMEText(text, "plain", "utf-8").as_string(),
    "base64": lambda text: base64_of(text.encode()),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 in lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "base64 of UTF-16": lambda text: base64_of(text.encode("utf-16")),
    "hex": lambda text: text.encode().hex(),
    "gzip": lambda text: base64_of(gzip.compress(text.encode())),
    "zlib": lambda text: base64_of(zlib.compress(text.encode())),
    "zstd": lambda text: base64_of(zstandard.compress(text.encode())),
    "brotli": lambda text: base64_of(brotli.compress(text.encode())),
    "full width": lambda text: moved(text, 0xFEE0),
    "tag characters": lambda text: moved(text, 0xE0000),
    "zero width": "\u200b".join,
    "confusables": lambda text: text.translate(CONFUSABLE),
}


def encoded(text, names):
    """Return a text under some codings, the first one innermost."""
    for name in names:
        text = CODINGS[name](text)
    return text
