"""Both enforcement points read the same requests; and a reader that does not is found out."""

import pytest

from lab import fuzz_peps
from lab.fuzz import TARGETS, fuzz
from lab.fuzz_peps import disagreement, read_lean, read_mitmproxy

HONEST = (
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    b"PUT /a?b=c HTTP/1.1\r\nHost: a\r\nX-Note: \tb \r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4;x=y\r\nhell\r\n1\r\no\r\n0\r\n\r\n"
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
)


def test_honest_requests_read_the_same_cut_at_every_byte():
    """Three of them, one behind the other."""
    whole, _ = read_lean([HONEST])
    assert [body for *_, body in whole] == [b"hello", b"hello", b""]

    for cut in range(1, len(HONEST)):
        pieces = [HONEST[:cut], HONEST[cut:]]
        assert read_lean(pieces) == (whole, False)
        assert read_mitmproxy(pieces) == (whole, False)


@pytest.mark.parametrize(
    "tampered",
    [
        pytest.param(lambda read: [(*one[:3], one[3][1:]) for one in read], id="shorter body"),
        pytest.param(lambda read: [(one[0], "/x", *one[2:]) for one in read], id="other target"),
        pytest.param(lambda read: [(*one[:2], (), one[3]) for one in read], id="fields left out"),
        pytest.param(lambda read: [*read, *read], id="one request more"),
    ],
)
def test_a_reader_that_differs_is_found(monkeypatch, tampered):
    """The same inputs fail where one of the two reads something else."""

    def other(pieces):
        read, _ = read_lean(pieces)
        return tampered(read), False

    monkeypatch.setattr(fuzz_peps, "read_lean", other)

    assert disagreement([HONEST])[1]
    assert fuzz(TARGETS["peps"], 1000, 3).failures
