"""Tenants of principals, as the credentials file names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guard.core.errors import GuardError
from guard.credentials.client_authentication import load_proofs, load_tenants

if TYPE_CHECKING:
    from pathlib import Path

SECRET = f'alice = "{"0" * 64}"\n'
TABLES = """
[tenants.research]
principals = ["research-*", "alice"]

[tenants.support]
principals = ["support-*", {re2 = "help[0-9]+"}, "research-9"]
shards = 8
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a credentials file with two tables."""
    file = tmp_path / "credentials.toml"
    file.write_text(SECRET + TABLES, encoding="utf-8")
    return file


def test_the_first_table_that_names_a_principal_counts(written: Path) -> None:
    """Who is in none is of the default tenant."""
    tenants = load_tenants(written)
    assert tenants is not None

    found = {who: tenants.of(who) for who in ("alice", "research-1", "research-9", "bob")}

    assert found == {
        "alice": "research",
        "research-1": "research",
        "research-9": "research",
        "bob": "default",
    }


def test_a_sharded_tenant_s_principals_are_spread_and_stay_where_they_are(written: Path) -> None:
    """By name alone, so that every worker and every start says the same."""
    tenants, again = load_tenants(written), load_tenants(written)
    assert tenants is not None
    assert again is not None
    who = [f"support-{n}" for n in range(200)]

    found = [tenants.of(one) for one in who]

    assert set(found) == {f"support.{n}" for n in range(8)}
    assert found == [again.of(one) for one in who]
    assert (tenants.of("help7"), tenants.of("support-0")) == ("support.5", "support.7")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[tenants.a]\nprincipals = []\n", "tenants.a.principals"),
        ("[tenants.a]\nprincipals = ['[x]']\n", "tenants.a.principals"),
        ("[tenants.a]\nprincipals = ['x']\nshards = 0\n", "tenants.a.shards"),
        ("[tenants.a]\nprincipals = ['x']\nshards = 257\n", "tenants.a.shards"),
        ("[tenants.a]\nprincipals = ['x']\nshard = 2\n", "tenants.a.shard"),
        ("[tenants.'a.1']\nprincipals = ['x']\n", "tenants.a.1"),
        ("tenants = 7\n", "tenants."),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, place: str) -> None:
    """The guard does not start: a principal in the wrong tenant would be without its labels."""
    file = tmp_path / "credentials.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(GuardError, match=f"`{place}"):
        load_tenants(file)


def test_tenants_are_of_principals_that_prove_who_they_are(tmp_path: Path) -> None:
    """Without proofs everybody is anonymous, and one."""
    file = tmp_path / "credentials.toml"
    file.write_text(TABLES, encoding="utf-8")

    with pytest.raises(GuardError, match="prove who they are"):
        load_proofs(file, lambda: 0.0)
