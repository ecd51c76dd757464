"""A protocol is added by one new file."""

import guard.protocols
from guard.protocols.base import discover_protocols
from guard.protocols.http.message import HttpRequest

GOPHER = '''
"""A protocol that a user dropped in."""
from guard.protocols.messages import Message, ParsedCall
from guard.protocols.base import ProtocolModule
from guard.protocols.http.message import HttpReply


class Gopher(ProtocolModule):
    name = "gopher"

    def matches(self, request):
        return request.target.startswith("/gopher")

    def parse(self, request):
        return Message((ParsedCall("gopher.get", {"path": request.target}),))

    def refuse(self, message, refusals):
        return HttpReply(403, "text/plain", b"3no")

    def unreadable(self, error, decision_id):
        return HttpReply(400, "text/plain", b"3what")
'''


def test_a_dropped_in_protocol_is_found_and_reads_its_requests(tmp_path, monkeypatch):
    """One file on the package's path is enough."""
    (tmp_path / "gopher.py").write_text(GOPHER, encoding="utf-8")
    monkeypatch.setattr(guard.protocols, "__path__", [*guard.protocols.__path__, str(tmp_path)])
    request = HttpRequest("GET", "http", "h", "/gopher/1", (), b"", "s", "c")

    found = [p for p in discover_protocols() if p.matches(request) and not p.is_fallback]

    assert [p.name for p in found] == ["gopher"]
    assert found[0].parse(request).calls[0].tool == "gopher.get"


def test_exactly_one_protocol_takes_the_rest_and_it_is_asked_last():
    """Whatever nobody claims is still a call."""
    protocols = discover_protocols()

    assert [p.is_fallback for p in protocols].count(True) == 1
    assert protocols[-1].is_fallback
