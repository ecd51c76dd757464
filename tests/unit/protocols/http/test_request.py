"""A plain request, as the guard reads it."""

import pytest

from guard.core.errors import MessageError
from guard.protocols.http.request import HttpRequestProtocol
from tests.roads import http_request, without_memo


@pytest.mark.parametrize(
    "header",
    [
        *("x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url"),
        *("x_http_method_override", "x_original-url"),
    ],
)
def test_a_header_that_gives_it_another_target_is_refused(header):
    """The server would do something else than what was judged."""
    with pytest.raises(MessageError):
        HttpRequestProtocol().parse(http_request(None, (header, "/v2"), method="GET"))


@pytest.mark.parametrize(
    "said", ["application/json, text/plain", "application/json; charset=utf-8,text/plain"]
)
def test_two_content_types_that_were_joined_are_two(said):
    """A proxy in front may join the lines of a field; the server may take the other one."""
    headers = (("content-type", said),)
    with pytest.raises(MessageError) as caught:
        HttpRequestProtocol().parse(without_memo(http_request(b"{}"), headers=headers))

    assert caught.value.code == "duplicate_header"
