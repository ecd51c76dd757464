"""A console on a real Redis and a log in a file, called without a socket."""

import json
from types import SimpleNamespace

import httpx
import pytest

from guard.console.access import Access
from guard.console.app import Console
from guard.console.decisions import DecisionIndex
from guard.console.sign_in import SignIn
from guard.core.errors import GuardError
from guard.operations.approvals import ApprovalActions
from guard.operations.deployment import Deployment, Person, Role
from guard.operations.incident_actions import Repairs
from guard.operations.policy_drafts import PolicyActions, PolicyDrafts, PolicyHistory
from guard.provenance.seal import Seal
from guard.store.trials import TrialStore
from guard.telemetry.audit_log import AuditLogFile
from tests.guards import KEY

NOW = 1_700_000_000.0
MEMORY = "http://127.0.0.1:1/mcp"
"""The listener of the console's repairs."""
POLICY = """version: 1
name: mail
internal_domains: [corp.example]
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
rules:
  - {id: inside, type: destination, status: [internal], effect: allow}
  - {id: outside, type: destination, status: [external], effect: block}
"""
TESTS = """version: 1
tests:
  - name: mail inside passes
    call: {tool: send, arguments: {to: a@corp.example, body: hi}}
    verdict: allow
    reasons: [inside]
  - name: mail outside is refused
    call: {tool: send, arguments: {to: a@evil.test, body: hi}}
    verdict: block
    reasons: [outside]
"""


@pytest.fixture(autouse=True)
def _no_repository(monkeypatch):
    """Let the policy lie in no repository, whatever the machine has: Git is a process."""

    def absent(*_):
        raise GuardError("git: not a repository")

    monkeypatch.setattr(PolicyHistory, "_git", absent)


def line(number, *, enforced="allow", tool="send", at="2023-11-14T22:00:00.000+00:00", **more):
    """Return one line of an audit log."""
    fields = {
        "event": "guard.decision",
        "decision_id": f"d{number}",
        "at": at,
        "principal": "alice",
        "tenant": "default",
        "session": "s1",
        "server": "127.0.0.1:1",
        "tool": tool,
        "role": "send",
        "action": enforced,
        "enforced": enforced,
        "reasons": [{"code": "unknown_tool", "rule": "r", "action": enforced, "detail": "why"}],
        "milliseconds": 1.0,
        "log": "L",
        "n": number,
    }
    return json.dumps({**fields, **more}) + "\n"


def events(console, prefix):
    """Return the audit lines whose event begins with a text."""
    lines = [json.loads(one) for one in console.log.read_text("utf-8").splitlines()]
    return [one for one in lines if one["event"].startswith(prefix)]


@pytest.fixture
def clock():
    """Seconds that only the test moves."""
    return SimpleNamespace(at=1000.0)


@pytest.fixture
def log(tmp_path):
    """An audit log with one decision of each verdict."""
    path = tmp_path / "audit.jsonl"
    verdicts = ("allow", "ask", "block")
    path.write_text("".join(line(n, enforced=v) for n, v in enumerate(verdicts)), "utf-8")
    return path


@pytest.fixture
def policy_file(tmp_path):
    """A policy that can be edited, with a test beside it, in no repository."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mail_test.yaml").write_text(TESTS, "utf-8")
    path = tmp_path / "policy" / "mail.yaml"
    path.write_text(POLICY, "utf-8")
    return path


@pytest.fixture
def console(store, log, clock, policy_file):
    """The console; ``as_(*roles)`` returns a client of somebody, signed in."""
    access = Access({}, lambda: clock.at)
    index = DecisionIndex(log)
    index.take_in()
    audit = AuditLogFile(log)
    in_force = SimpleNamespace(policy=lambda: None)

    async def tenants():
        return index.tenants()

    deployment = Deployment(
        store, Seal(KEY), audit, lambda: NOW, tenants, lambda: in_force.policy()
    )
    actions = ApprovalActions(deployment)
    bench = PolicyDrafts([policy_file])
    writes = SimpleNamespace(done=[], fails=False, two=False)

    async def write(server, tool, arguments):
        if writes.fails:
            raise OSError("the memory server cannot be asked")
        writes.done.append((server, tool, arguments))

    repairs = Repairs((MEMORY,), write, lambda: writes.two)
    policies = PolicyActions(bench, TrialStore(store, Seal(KEY)), audit, lambda: NOW)
    found = Console(index, actions, policies, repairs, SignIn(access), {"console"})

    def client(*roles, name="pat"):
        person = Person(name, frozenset(map(Role, roles)))
        cookies = {"guard_console": access.sign_in(person)} if roles else {}
        headers = {"origin": "http://console", "sec-fetch-site": "same-origin"}
        if roles:
            held = access.session(cookies["guard_console"])
            headers["x-csrf-token"] = held.csrf
        transport = httpx.ASGITransport(app=found.app)
        return httpx.AsyncClient(
            transport=transport, base_url="http://console", cookies=cookies, headers=headers
        )

    yield SimpleNamespace(
        drafts=bench,
        policies=policies,
        in_force=in_force,
        console=found,
        as_=client,
        access=access,
        index=index,
        actions=actions,
        log=log,
        writes=writes,
    )
    index.close()
    audit.close()
