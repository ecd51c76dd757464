"""The admin port: metrics, liveness and readiness over real HTTP."""

import http.client
import json

import pytest

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


def test_healthz_says_alive_even_where_not_ready(serve):
    """A restart would not help a guard whose Redis is gone."""
    server = serve(lambda: HealthReport(ready=False, stages={"state": "down"}))

    assert ask(server, "/healthz")[0] == 200


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
