"""The admin port: metrics, liveness and readiness over real HTTP."""

import http.client
import json
import socket

import pytest

from guard.processes.loopback import free_port
from guard.runtime.admin_port import AdminServer, HealthReport
from guard.telemetry.metrics import PrometheusMetrics


@pytest.fixture
def serve():
    """Start servers that are closed at the end of the test."""
    servers = []

    def start(health=lambda: HealthReport(ready=True)):
        server = AdminServer("127.0.0.1", 0, PrometheusMetrics(), health)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def ask(server, path, method="GET"):
    """Return status and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_metrics_shows_the_registry(serve):
    """A series that exists from the start is in the page."""
    status, body = ask(serve(), "/metrics")

    assert status == 200
    assert b'guard_fail_closed{stage="state"} 0.0' in body


def test_healthz_says_alive_even_where_not_ready(serve):
    """A restart would not help a guard whose Redis is gone."""
    server = serve(lambda: HealthReport(ready=False, stages={"state": "down"}))

    assert ask(server, "/healthz")[0] == 200


def test_readyz_is_200_when_ready(serve):
    """All is well."""
    status, body = ask(serve(), "/readyz")

    assert (status, json.loads(body)) == (200, {"ready": True, "stages": {}})


def test_readyz_is_503_with_the_failing_stages(serve):
    """Whoever reads it learns which part fails."""
    server = serve(lambda: HealthReport(ready=False, stages={"state": "no answer from Redis"}))

    status, body = ask(server, "/readyz")

    assert (status, json.loads(body)) == (
        503,
        {"ready": False, "stages": {"state": "no answer from Redis"}},
    )


def test_a_health_check_that_raises_is_not_ready(serve):
    """The error's text stays inside; its type is named."""

    def broken():
        raise RuntimeError("secret")

    status, body = ask(serve(broken), "/readyz")

    assert (status, json.loads(body)) == (
        503,
        {"ready": False, "stages": {"health": "RuntimeError"}},
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 405)],
)
def test_anything_else_is_refused(serve, method, path, status):
    """Three paths, read only."""
    assert ask(serve(), path, method)[0] == status


def test_a_silent_client_does_not_keep_others_waiting(serve, capfd):
    """Each connection has a thread of its own; a client that goes away leaves no traceback."""
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.sendall(b"GET /metr")
        assert ask(server, "/healthz")[0] == 200
    assert ask(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_close_frees_the_port():
    """The same port can be bound again at once."""
    port = free_port()
    AdminServer("127.0.0.1", port, PrometheusMetrics(), lambda: HealthReport(ready=True)).close()

    AdminServer("127.0.0.1", port, PrometheusMetrics(), lambda: HealthReport(ready=True)).close()
