"""A plain request, as the guard reads it."""

import pytest

from guard.core.errors import MessageError
from guard.protocols.http.message import HttpRequest
from guard.protocols.http.request import HttpRequestProtocol


@pytest.mark.parametrize(
    "header",
    [
        *("x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"),
        *("x_http_method_override", "x_original-url"),
    ],
)
def test_a_header_that_gives_it_another_target_is_refused(header):
    """The server would do something else than what was judged."""
    headers = (("host", "a.test"), (header, "/v2"))
    request = HttpRequest("GET", "https", "a.test", "/v1/x", headers, b"", "l", "c")

    with pytest.raises(MessageError):
        HttpRequestProtocol().parse(request)


@pytest.mark.parametrize(
    "said", ["application/json, text/plain", "application/json; charset=utf-8,text/plain"]
)
def test_two_content_types_that_were_joined_are_two(said):
    """A proxy in front may join the lines of a field; the server may take the other one."""
    headers = (("host", "a.test"), ("content-type", said))
    request = HttpRequest("POST", "https", "a.test", "/v1/x", headers, b"{}", "l", "c")

    with pytest.raises(MessageError) as caught:
        HttpRequestProtocol().parse(request)

    assert caught.value.code == "duplicate_header"
