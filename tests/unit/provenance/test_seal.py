"""What the deployment's key makes is the same in every version: a store outlives them."""

import pickle

from guard.core.labels import LabelSet
from guard.provenance.seal import Seal

KEY = bytes(range(32))
MADE = [
    "39d80939c10cb28f0428dfc5",
    "6ba4b2be56f2d1a0968b87ce",
    "60a9eced4884205612b59730",
    "a3cd88b003e06059",
]
ENCIPHERED = "5fdfa1a476b0136182d761732096f9404b6b9b4f7899720f5e6fba3b8ea89cdd"


def test_what_is_made_of_a_key_stays_as_it_is():
    """Fingerprints, digests and ciphertexts, of odd texts too, one after the other and again."""
    seal, area = Seal(KEY), LabelSet("y", ("t",), "", ttl=0, limit=1)
    for _ in range(2):
        texts = "mail:jos\u00e9@a.test", "\ud800", "x" * 5000
        made = [*map(seal.fingerprint, texts), seal.digest("a", "b")]
        assert [one.hex() for one in made] == MADE
        assert seal.enciphered(area, b"f", b"text").hex() == ENCIPHERED
        assert seal.deciphered(area, b"f", bytes.fromhex(ENCIPHERED)) == b"text"


def test_a_rotated_key_opens_what_the_former_one_sealed():
    """As long as it is accepted, in this process and in another; altered bytes are nothing."""
    former, new, area = KEY[::-1], bytes(32), LabelSet("y", ("t",), "", ttl=0, limit=1)
    seal = Seal(KEY, (former,))
    sealed, secret = seal.sealed(area, b"f", b"body"), seal.enciphered(area, b"f", b"body")
    signed = seal.signature("x", b"data")
    seal.rotate((new, former))
    for one in (seal, pickle.loads(pickle.dumps(seal))):
        assert one.opened(area, b"f", sealed) == one.deciphered(area, b"f", secret) == b"body"
        found = one.opened_all(area, b"f", [sealed, sealed[:-1] + b"z", b""])
        assert found == [b"body", None, None]
        assert one.is_signature("x", b"data", signed)
        assert not one.is_signature("y", b"data", signed)
    seal.rotate((new,))
    assert seal.opened(area, b"f", sealed) is seal.deciphered(area, b"f", secret) is None
    assert seal.opened_all(area, b"f", [sealed]) == [None]
