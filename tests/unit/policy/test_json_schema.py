"""The generated schema: as true as the loader."""

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from guard.policy import PolicyError, load_policies
from guard.policy.json_schema import policy_schema
from guard.policy.yaml_loader import load_document
from guard.settings import builtin_policies

POLICIES = sorted(builtin_policies().values())
INVALID = sorted((Path(__file__).parent / "invalid").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator():
    """Return a validator with the schema in force."""
    schema = policy_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_shipped_policies_fit_the_schema(validator, path):
    """An editor must not complain about what the guard accepts."""
    assert [e.message for e in validator.iter_errors(load_document(path).value)] == []


def test_the_schema_is_never_stricter_than_the_loader(validator):
    """Whatever the schema refuses, the loader refuses as well."""
    documents = [(path, load_document(path)) for path in INVALID]
    readable = [(path, document.value) for path, document in documents if not document.problems]
    refused = [path for path, value in readable if not validator.is_valid(value)]

    assert len(refused) > 15
    for path in refused:
        with pytest.raises(PolicyError):
            load_policies([path])
