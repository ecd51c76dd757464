"""Several servers behind one listener: which settings are refused, and where a request goes."""

from types import SimpleNamespace

import certifi
import pytest

from guard.core.errors import MessageError
from guard.pep.envoy.front import Fronted
from guard.pep.lean.messages import RequestRead
from guard.pep.lean.upstream_requests import UpstreamRequests, client_request
from guard.pep.routes import Routes
from guard.settings import Listener

MAIL = "127.0.0.1:9001/mail=http://mail.test:8000/mcp"
FILES = "127.0.0.1:9001/files=https://files.test"
ROUTES = Routes([Listener.parse(MAIL), Listener.parse(FILES)])


@pytest.mark.parametrize(
    ("path", "server", "target"),
    [
        ("/mail", "mail", "/mcp"),
        ("/mail?x=1", "mail", "/mcp?x=1"),
        ("/mail/messages/?s=1", "mail", "/messages/?s=1"),
        ("/mail/", "mail", "/"),
        ("/files", "files", "/"),
        ("/files/a%2e", "files", "/a%2e"),
    ],
)
def test_a_request_goes_to_the_server_of_its_path(path, server, target):
    """The path alone is the server's endpoint; what follows it is the server's own."""
    found = ROUTES.find(9001, path)

    assert (found[0].route, found[1]) == (f"/{server}", target)
    assert ROUTES.find(9002, path) is None


@pytest.mark.parametrize(
    "path", ["/", "", "/MAIL", "/mai%6c", "//mail", "/mail/../files", "/mail/.", "/none", "*"]
)
def test_any_other_path_is_refused(path):
    """In one spelling, and nobody climbs out."""
    with pytest.raises(MessageError) as caught:
        ROUTES.find(9001, path)

    assert caught.value.code == "unknown_path"


@pytest.mark.parametrize(("upstream", "host"), [("https", "tools.test"), ("http", "other.test")])
def test_towards_https_the_host_is_the_configured_one(upstream, host):
    """Behind a shared edge a Host of the agent's choosing would reach another tenant."""
    server = Listener.parse(f"127.0.0.1:9003={upstream}://tools.test")
    request = RequestRead("GET", "/", ((b"Host", b"other.test"),), b"", True, True, False)
    client = SimpleNamespace(sockname=("127.0.0.1", 9003), id="c1", shown=Fronted())
    builder = UpstreamRequests(None, {}, certifi.where(), egress=False)

    asked = builder.build(server, request, client_request(client, server, request), None)

    assert [one for one in asked.data.split(b"\r\n") if one.lower().startswith(b"host:")] == [
        f"Host: {host}".encode()
    ]
