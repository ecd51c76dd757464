"""Statements that may reach outside their database count; others, and sentences, do not."""

from itertools import chain

import pytest

from guard.core.work import LIMIT, WorkBudget, WorkExceededError, within
from guard.values import statements
from guard.values.statements import statements_in, writes_values
from lab.trust.plots import book_of, coded

HOST = "elsewhere.test"
BOOK = book_of("roles")
STATEMENTS = [one.replace("${host}", HOST) for one in (*BOOK["statements"], *BOOK["cut"])]
SPLIT_DIFFERENTLY = (
    "SELECT '\\'; BROADCAST x; --'",
    "SELECT 1 # '\n INTO OUTFILE '/x' #'",
    "SELECT 1 --load_file('x')",
    "/*!50000 SELECT 1 INTO OUTFILE 'x' */",
    "SELECT q'[ ' ]' || f('x')",
    "SELECT $a$ ' $a$, dblink('x') -- '",
    "/* /* */ COPY t TO PROGRAM 'x' -- */",
    "SELECT [a'b], f('x') FROM t",
    "SELECT a FROM t@link",
)
OTHER = (
    "CREATE TABLE t ENGINE=URL('x')",
    "CREATE EXTERNAL TABLE t (a int) LOCATION 's3://x'",
    "CREATE TRIGGER t AFTER INSERT ON x EXECUTE FUNCTION f()",
    "CREATE VIEW v AS SELECT dblink('x')",
    "EXPLAIN ANALYZE SELECT dblink('x')",
    "SELECT 1 UNION SELECT pg_read_file('x')",
    "INSERT INTO t SELECT load_file('/x')",
    "WITH a AS (COPY t TO '/x') SELECT 1",
    "SELECT * FROM read_parquet('x')",
    "SELECT * FROM '/net/x.csv'",
    "SELECT ai_generate('x')",
    "SELECT evil.lower('x')",
    "DROP EXTENSION x",
    "SELECT 1; KICK x",
    "BROADCAST 'x' TO h",
    "CREATE TABLE a.b.c.d (x int)",
    "SELECT {fn load_file('x')}",
    "SELECT " + "(" * 100 + "1" + ")" * 100,
    "SELECT '" + "x" * statements.LIMIT + "'",
)


def attempts():
    """Yield statements that reach outside, in the disguises that servers accept."""
    for text in STATEMENTS:
        for disguise in BOOK["disguises"].values():
            yield coded(text, disguise)
    for function in BOOK["functions"]:
        for quoted in BOOK["quoted"].values():
            name = coded(function["name"], quoted)
            yield function["sql"].replace("${f}", name).replace("${host}", HOST)
    for function in BOOK["escaped_functions"]:
        yield function["sql"].replace("${host}", HOST)
    yield from (*SPLIT_DIFFERENTLY, *OTHER)


HONEST = (
    "select name, count(*) from orders group by 1",
    "SELECT * FROM notes WHERE text = 'copy it; notify Ann'",
    "insert into t values ('it''s; fine')",
    "with a as (select 1) select * from a",
    "BEGIN; UPDATE t SET a = 1; COMMIT;",
    "/* all */ (select 1)",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "PRAGMA table_info(users)",
    "SELECT TOP 5 [id] FROM dbo.Users WHERE d > GETDATE()",
    "SELECT `id` FROM `users` LIMIT 3",
    "SELECT count(*) FILTER (WHERE a) OVER (PARTITION BY b) FROM t",
    "SELECT date_trunc('month', d), strftime('%Y', d), now() FROM t WHERE n = 'issue #3'",
    "CREATE TABLE IF NOT EXISTS a (id serial PRIMARY KEY, n varchar(3) NOT NULL DEFAULT 'x')",
    "ALTER TABLE t ADD COLUMN c int",
    "INSERT INTO t (a) VALUES ('x') ON CONFLICT DO NOTHING RETURNING id",
    "MERGE INTO t USING s ON t.a=s.a WHEN MATCHED THEN UPDATE SET b=1",
    "SELECT a->>'b' FROM t WHERE d = ANY(ARRAY[1,2]) AND c @> '{}'",
    "CREATE TEMP TABLE x AS SELECT 1",
    "SELECT row_number() OVER (ORDER BY a), string_agg(n, ',') FROM t",
)
SENTENCES = (
    "notify the team about the release",
    "Please notify Ann, and then load the data",
    "Create event for Monday with Ann",
    "Grant access to the team",
    "Restore database from backup",
    "Update the ticket and attach (see below)",
    "update on project x",
    "set up the meeting",
    "call Bob's office",
    "copy this to Ann",
    "Select a file from the list",
    "delete the meeting",
    "insert coin into slot",
    "From: ann@partner.test\nListen to the recording",
    "users",
)


def test_what_may_reach_outside_counts_where_an_argument_is_sql():
    """By the mapping or by the argument's name, in every disguise."""
    for more in ({"is_sql": True}, {"name": "rawSQL"}):
        missed = [text for text in attempts() if not [*statements_in(text, **more)]]
        assert missed == []


def test_elsewhere_it_counts_where_a_text_looks_like_sql():
    """A few statements of plain words pass for sentences."""
    missed = {text.lower() for text in attempts() if not [*statements_in(text)]}
    plain = ("import foreign", "prepare s", "add jar", "select 1; kick x", "drop extension")
    plain = (*plain, ".shell/**/", "select (((")
    assert [text for text in missed if not text.startswith(plain)] == []


@pytest.mark.parametrize("text", HONEST)
def test_what_stays_inside_is_no_destination(text):
    """In several dialects, even where the argument is SQL."""
    assert [*statements_in(text, is_sql=True)] == []


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_are_no_statements(text):
    """Although they begin with a verb of SQL."""
    assert [*statements_in(text)] == []
    assert not writes_values(text)


def test_a_function_has_a_name_that_a_policy_can_allow():
    """A statement has the digest of its text: an operator allows no other one with it."""
    texts = "SELECT pg_size_pretty(1)", "COPY t TO '/x'", "COPY t TO '/y'"
    function, one, other = (found.canonical for t in texts for found in statements_in(t, "sql"))

    assert (function, one.startswith("sql:copy:")) == ("sql:function:pg_size_pretty", True)
    assert one != other


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("INSERT INTO t VALUES ('a@b.test')", True),
        ("WITH x AS (SELECT 1) UPDATE t SET a = 'b'", True),
        ("insert into t values ('a' 'b' c d (", True),
        ("SELECT mail FROM t WHERE a = 'insert into t values'", False),
        ("DELETE FROM t", False),
    ],
)
def test_whether_a_statement_writes_is_read_from_it(text, writes):
    """A statement that does not parse writes where its verb does."""
    assert writes_values(text) is writes


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("_outside_of", lambda _statement: iter(())),
        ("_UNLIKE", statements.re2.compile("a{0}z{9}")),
        ("_parser", lambda: lambda _text, _dialect: []),
    ],
)
def test_with_a_part_of_the_reading_off_attempts_pass(monkeypatch, name, off):
    """Nodes inside a statement, signs that servers read differently, and the parser matter."""
    monkeypatch.setattr(statements, "_read", statements._read.__wrapped__)
    monkeypatch.setattr(statements, name, off)

    assert not all([*statements_in(text, is_sql=True)] for text in attempts())


def test_statements_have_a_budget_per_message():
    """Many long ones exceed it; a text that is no statement costs nothing."""
    long = "SELECT a FROM t WHERE b = '" + "x" * 4000 + "'"
    with within(WorkBudget(LIMIT)) as budget:
        assert [*statements_in("see the attached text " * 300)] == []
        assert budget.spent == 0
        texts = [f"{long} AND c = {number}" for number in range(20)]
        with pytest.raises(WorkExceededError):
            list(chain.from_iterable(map(statements_in, texts)))


@pytest.mark.parametrize(
    ("text", "reaches"),
    [
        ("IMPORT FOREIGN SCHEMA public FROM SERVER other INTO public", True),
        ("prepare s from @x", True),
        ("INSTALL httpfs; LOAD httpfs", True),
        ("Prepare slides from the notes", False),
        ("Import foreign cars", False),
        ("Install the update; load the page", False),
    ],
)
def test_statements_of_words_alone_are_read_in_undeclared_arguments(text, reaches):
    """A statement without literals reaches outside as well; a sentence does not."""
    assert bool(list(statements_in(text, "note"))) is reaches
