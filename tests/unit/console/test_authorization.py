"""The door of the console: every route as everybody, other sites, other names."""

import hashlib

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from guard.console.access import LINK_SECONDS, READS, SESSION_SECONDS, TRIES
from guard.console.authorization import AuthorizationMiddleware
from guard.console.sign_in import ways_to_sign_in
from guard.core.errors import InputError
from guard.operations.deployment import Role
from guard.settings import load_settings

MAY = {
    None: set(),
    "viewer": {Role.VIEWER},
    "approver": {Role.VIEWER, Role.APPROVER},
    "author": {Role.VIEWER, Role.AUTHOR},
    "admin": set(Role),
}


@pytest.mark.parametrize("role", MAY, ids=str)
async def test_every_route_answers_only_those_it_is_declared_for(console, role):
    """Somebody without the role gets 401 or 403, on every route of the table."""
    async with console.as_(*([role] if role else [])) as client:
        for page in console.console.pages:
            if page.path == "/sign-out":
                continue
            path = page.path.replace("{decision}", "d1").replace("{tenant}", "default")
            path = path.replace("{name}", "console.css").replace("{secret}", "x")
            answer = await client.request(page.method, path)
            if page.path.startswith("/sign-in"):
                # For everybody, who is told there what is wrong.
                assert "<h1>Sign in</h1>" in answer.text, (page, answer.text)
                continue
            passes = page.needs == "public" or page.needs in MAY[role]
            refused = answer.status_code in {401, 403}
            assert refused is not passes, (page, answer.status_code)


async def test_a_route_that_nobody_was_declared_for_answers_nobody(console):
    """A page that somebody adds and forgets to declare is denied, also to an administrator."""

    async def page(_):
        return PlainTextResponse("secret")

    route = Route("/new", page, name="GET /new")
    gate = AuthorizationMiddleware(route.app, [route], {}, console.access, {"console"})
    console.console.app = gate
    async with console.as_("admin") as client:
        client._transport.app = gate
        assert (await client.get("/new")).status_code == 404


async def test_an_act_needs_the_token_and_the_origin_of_a_page(console):
    """A form of another site, without the token or with another origin, changes nothing."""
    other_sites = ({"x-csrf-token": ""}, {"origin": "http://evil.test"})
    async with console.as_("admin") as client:
        answers = [
            await client.post("/approvals/default/d1", data={"answer": "deny"}, headers=headers)
            for headers in (*other_sites, {"sec-fetch-site": "cross-site"}, {})
        ]

    # Nothing waits under this id.
    assert [one.status_code for one in answers] == [403, 403, 403, 409]


async def test_another_name_for_the_console_is_refused(console):
    """A site's name that was pointed at this machine shows it nothing."""
    async with console.as_("admin") as client:
        answer = await client.get("/", headers={"host": "evil.test"})

    assert answer.status_code == 421


async def test_the_link_is_good_once_and_for_a_while(console, clock):
    """A used or old link signs nobody in; opening it does not use it."""
    async with console.as_() as client:
        secret = console.access.link()
        assert (await client.get(f"/sign-in/{secret}")).status_code == 200
        first = await client.post("/sign-in", data={"secret": secret})
        again = await client.post("/sign-in", data={"secret": secret})
        late = console.access.link()
        clock.at += LINK_SECONDS + 1
        old = await client.post("/sign-in", data={"secret": late})

    assert [one.status_code for one in (first, again, old)] == [303, 401, 401]
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "samesite=lax" in first.headers["set-cookie"].lower()


async def test_sessions_end(console, clock):
    """A session ends by sign-out and by time."""
    async with console.as_("viewer") as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.post("/sign-out")).status_code == 303
        client.cookies.set("guard_console", "no")
        assert (await client.get("/api/decisions")).status_code == 401
    async with console.as_("viewer") as client:
        clock.at += SESSION_SECONDS + 1
        assert (await client.get("/api/decisions")).status_code == 401


async def test_secrets_are_not_guessed_by_asking_pages(console):
    """A bearer that is not known counts as a try, whatever it asks for; reads are many."""
    async with console.as_() as client:
        wrong = {"authorization": "Bearer no"}
        guessed = [
            (await client.get("/api/decisions", headers=wrong)).status_code
            for _ in range(TRIES + 1)
        ]
    async with console.as_("viewer") as client:
        read = [(await client.get("/static/console.css")).status_code for _ in range(READS + 1)]
    assert (guessed[0], guessed[-1]) == (401, 429)
    assert (read[0], read[-1]) == (200, 429)


async def test_every_page_forbids_inline_scripts_and_framing(console):
    """The policy of the pages names no source but the console itself."""
    async with console.as_("admin") as client:
        for path in ("/", "/approvals", "/sessions", "/tools", "/record"):
            policy = (await client.get(path)).headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


SECRET = hashlib.sha256(b"alice's").hexdigest()


def test_people_sign_in_with_their_secret(tmp_path):
    """A person has the roles of the file; another secret is nobody's."""
    path = tmp_path / "people.toml"
    path.write_text(f'[people.alice]\nsecret = "{SECRET}"\nroles = ["approver"]\n', "utf-8")
    access = ways_to_sign_in(load_settings(None, console_people=path), lambda: 0.0).access

    person = access.bearer("alice's")
    assert (person.may(Role.VIEWER), person.may(Role.APPROVER)) == (True, True)
    assert (person.may(Role.AUTHOR), person.may(Role.ADMIN)) == (False, False)
    assert access.bearer("bob's") is None
    assert access.redeem("") is None


@pytest.mark.parametrize(
    "text",
    [
        '[people.alice]\nsecret = "short"\nroles = ["viewer"]\n',
        f'[people.alice]\nsecret = "{SECRET}"\nroles = ["king"]\n',
        f'[people.a]\nsecret = "{SECRET}"\nroles = []\n[people.b]\nsecret = "{SECRET}"\nroles = []',
        'people = "all"',
        "[nobody]",
    ],
)
def test_a_people_file_that_is_wrong_is_refused(tmp_path, text):
    """A misspelt role or a shared secret is an error at the start, not a wider right."""
    path = tmp_path / "people.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match="people file"):
        ways_to_sign_in(load_settings(None, console_people=path), lambda: 0.0)
