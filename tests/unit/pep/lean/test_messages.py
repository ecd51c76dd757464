"""What the lean PEP takes for a message, wherever the bytes of the wire are cut."""

import pytest

from guard.pep.lean.messages import HEAD_LIMIT, AnswerReader, RequestReader

BODY = b'{"a": 1}'
CHUNKED = (
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3;x=y\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n'
)
GET = b"GET /x?y=z HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def read(*pieces):
    """Return a reader that was fed these pieces, up to the first that it refuses."""
    reader = RequestReader(1000)
    for piece in pieces:
        if reader.error is None and reader.rest is None:
            reader.feed(piece)
    return reader


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HEAD + b"Content-Length: 8\r\nContent-Length: 8\r\n\r\n" + BODY, "bad_http"),
        (HEAD + b"Content-Length: 8\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "bad_http"),
        (HEAD + b"Content-Length: +8\r\n\r\n" + BODY, "bad_http"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "bad_transfer_encoding"),
        (HEAD + b"Transfer-Encoding: identity\r\n\r\n", "bad_http"),
        (HEAD + b"X: a\r\n b\r\n\r\n", "bad_http"),
        (HEAD + b"X: a\rb\r\n\r\n", "bad_http"),
        (HEAD + b"X: a\n\r\n", "bad_http"),
        (HEAD + b"X: a\x00b\r\n\r\n", "bad_http"),
        (HEAD + b"X : a\r\n\r\n", "bad_http"),
        (HEAD + b"Host: b\r\n\r\n", "bad_http"),
        (b"POST /mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "bad_http"),
        (GET.replace(b"1.1", b"0.9"), "bad_http"),
        (GET.replace(b"1.1", b"2.0"), "bad_http"),
        (b"GET /x\r\n\r\n", "bad_http"),
        (b"PRI * HTTP/2.0\r\n\r\n", "bad_http"),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "bad_http"),
        (b"GET x HTTP/1.1\r\nHost: a\r\n\r\n", "bad_http"),
        # An absolute target without a path, with a name and a password, or an empty fragment.
        (GET.replace(b"/x?y=z", b"http://b"), "bad_http"),
        (GET.replace(b"/x?y=z", b"http://b?x=/y"), "bad_http"),
        (GET.replace(b"/x?y=z", b"http://u@b/x"), "bad_http"),
        (GET.replace(b"/x?y=z", b"http://b/#"), "bad_http"),
        (CHUNKED[:-2] + b"X-Trailer: 1\r\n\r\n", "bad_http"),
        (CHUNKED.replace(b"5\r\n", b"5\n"), "bad_http"),
        (HEAD + b"Content-Length: 4001\r\n\r\n", "body_too_large"),
        (CHUNKED.replace(b"3;x=y\r\n", b"fa1\r\n" + b" " * 4001 + b"\r\n"), "body_too_large"),
        (HEAD + b"X: " + b"y" * HEAD_LIMIT, "bad_http"),
        (HEAD + b"a:\r\n" * 14_000 + b"\r\n", "bad_http"),
        (SOCKET.replace(b"websocket", b"h2c"), "upgrade"),
        (SOCKET.replace(b"Version: 13", b"Version: 12"), "upgrade"),
        (SOCKET.replace(b"Host: a\r\n", b"Host: a\r\nContent-Length: 4\r\n") + b"abcd", "upgrade"),
    ],
)
def test_what_another_reader_may_take_for_something_else_is_refused(data, code):
    """However it arrives; what came whole before it stays."""
    for pieces in ([data], [data[:20], data[20:]], [data[i : i + 1] for i in range(len(data))]):
        reader = read(GET, *pieces)
        assert [one.target for one in reader.complete] == ["/x?y=z"]
        assert reader.error is not None
        assert reader.error.code == code


@pytest.mark.parametrize(
    ("target", "path"), [(b"http://evil.test/x?y=z", "/x?y=z"), (b"http://evil.test/?", "/?")]
)
def test_of_an_absolute_target_only_the_path_counts(target, path):
    """Whom it names does not matter: there is one upstream."""
    assert [one.target for one in read(GET.replace(b"/x?y=z", target)).complete] == [path]


def test_what_follows_a_handshake_is_not_http():
    """It is kept until the upstream has accepted."""
    reader = read(SOCKET + GET)

    assert (len(reader.complete), reader.rest) == (1, GET)
    assert reader.complete[0].opens_socket


def answer(data, method="POST"):
    """Return a reader that was fed an answer byte by byte."""
    reader = AnswerReader(method)
    for place in range(len(data)):
        reader.feed(data[place : place + 1])
    return reader


@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab", b"ab", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"a", True),
        (b"HTTP/1.1 204 No\r\n\r\n", b"", True),
        (
            b"HTTP/1.1 103 E\r\nX: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            b"a",
            True,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n", b"a", False),
    ],
)
def test_an_answer_is_read_whole(data, body, reusable):
    """Interim answers are passed over, and what nobody asked for ends the connection."""
    reader = answer(data)

    assert (reader.is_complete, bytes(reader.waiting)) == (True, body)
    assert reader.is_reusable == reusable
    assert reader.all("x") == ()


def test_an_answer_without_a_length_ends_with_its_connection():
    """One with a length that ends early was lost."""
    endless = answer(b"HTTP/1.1 200 OK\r\n\r\nab")
    cut = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab")
    for reader in (endless, cut):
        assert not reader.is_complete
        reader.end()

    assert (endless.is_complete, endless.error) == (True, "")
    assert not cut.is_complete
    assert cut.error


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n b\r\n\r\nab",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
        b"nonsense\r\n\r\n",
    ],
)
def test_an_answer_that_cannot_be_read_one_way_only_is_lost(data):
    """Nothing of it is released, and the connection is not used again."""
    reader = answer(data)

    assert reader.error
    assert not reader.is_complete
    assert not reader.is_reusable


@pytest.mark.parametrize("size", [1, 100, 4096])
def test_a_body_that_is_too_large_goes_by_with_its_id_kept(size):
    """Up to a few times the limit; the next request is read as ever."""
    body = b'{"params": "' + b"x" * 2000 + b'", "id": 3, "method": "tools/call"}'
    data = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    reader = read(*(data[i : i + size] for i in range(0, len(data), size)), GET)

    large, after = reader.complete
    assert large.is_oversize
    assert len(large.body) < 100
    assert b'"id":3' in large.body
    assert (after.target, after.is_oversize) == ("/x?y=z", False)
    assert reader.held == 0
