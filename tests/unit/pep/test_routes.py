"""Several servers behind one listener: which settings are refused, and where a request goes."""

import pytest
from mitmproxy.test import tflow

from guard.core.errors import MessageError
from guard.pep.mitm.translation import ROUTE, enter_route
from guard.pep.routes import Routes
from guard.settings import Listener

MAIL = "127.0.0.1:9001/mail=http://mail.test:8000/mcp"
FILES = "127.0.0.1:9001/files=https://files.test"
ROUTES = Routes([Listener.parse(MAIL), Listener.parse(FILES)])


def flow_to(path):
    """Return a request that came in by the listener."""
    flow = tflow.tflow()
    flow.client_conn.sockname = ("127.0.0.1", 9001)
    flow.request.path = path
    return flow


@pytest.mark.parametrize(
    ("path", "address", "target"),
    [
        ("/mail", ("http", "mail.test", 8000), "/mcp"),
        ("/mail?x=1", ("http", "mail.test", 8000), "/mcp?x=1"),
        ("/mail/messages/?s=1", ("http", "mail.test", 8000), "/messages/?s=1"),
        ("/mail/", ("http", "mail.test", 8000), "/"),
        ("/files", ("https", "files.test", 443), "/"),
        ("/files/a%2e", ("https", "files.test", 443), "/a%2e"),
    ],
)
def test_a_request_goes_to_the_server_of_its_path(path, address, target):
    """The path alone is the server's endpoint; what follows it is the server's own."""
    flow = flow_to(path)
    enter_route(flow, ROUTES)

    assert (flow.request.scheme, flow.request.host, flow.request.port) == address
    assert flow.request.path == target
    assert flow.metadata[ROUTE] == "/" + path.split("/")[1].partition("?")[0]


@pytest.mark.parametrize(
    "path", ["/", "", "/MAIL", "/mai%6c", "//mail", "/mail/../files", "/mail/.", "/none", "*"]
)
def test_any_other_path_is_refused(path):
    """In one spelling, and nobody climbs out."""
    with pytest.raises(MessageError) as caught:
        enter_route(flow_to(path), ROUTES)

    assert caught.value.code == "unknown_path"


def test_another_listener_is_left_alone():
    """It has one server."""
    flow = flow_to("/anything")
    flow.client_conn.sockname = ("127.0.0.1", 9002)
    enter_route(flow, ROUTES)

    assert (flow.request.path, ROUTE in flow.metadata) == ("/anything", False)


def test_connections_are_opened_to_the_named_servers_alone():
    """And by their own listener."""
    assert ROUTES.lead_to(9001, ("mail.test", 8000))
    assert not ROUTES.lead_to(9001, ("mail.test", 443))
    assert not ROUTES.lead_to(9002, ("mail.test", 8000))
