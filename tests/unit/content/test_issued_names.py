"""What a service issues in its own name space hides nothing; the same form elsewhere does."""

import base64

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import ocsp

from guard.content.host_names import host_hides_data
from guard.content.issued_names import is_issued, is_own_parameter
from guard.content.url_parts import url_hides_data

CLUSTER = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
DRAWN = "Xk3dVfQ8yZr2LmTnBaWqPoIuYtReWqAsDfGhJkLm9n8b7v"
MEETING = base64.b64encode(b"594eb9c0-10df-4996-a985-782c78b6657e").decode()
STATUS = base64.b64encode(
    ocsp.OCSPRequestBuilder()
    .add_certificate_by_hash(bytes(range(20)), bytes(range(100, 120)), 4711 << 90, hashes.SHA1())
    .build()
    .public_bytes(serialization.Encoding.DER)
).decode()


@pytest.mark.parametrize(
    "host",
    [
        f"{CLUSTER}.gr7.eu-central-1.eks.amazonaws.com",
        "k8s-default-planner-4f1c0b7a9d-2e6f83a1b2c3d4e5.elb.eu-central-1.amazonaws.com",
        "exports.8f1f0345791836e0bfb94ada9bb67d95.r2.cloudflarestorage.com",
        "vpc-search-x7k2m9q4wa8e3r5t6y1u0i2o3p.eu-central-1.es.amazonaws.com",
    ],
)
def test_a_name_that_a_provider_makes_up_is_no_data(host):
    """With one label in front of the zone, and nothing in front of that."""
    assert is_issued(host)
    assert not host_hides_data(host)
    assert not is_issued(f"{CLUSTER}.{host}")
    assert host_hides_data(f"{CLUSTER}.gr7.eu-central-1.eks.amazonaws.com.evil.test")
    assert not is_issued(f"{CLUSTER}.gr7.eu-central-1.eks.amazonaws.evil.test")


@pytest.mark.parametrize(
    ("own", "elsewhere"),
    [
        (
            f"https://teams.microsoft.com/l/meetup-join/19%3ameeting_{MEETING}%40thread.v2/0",
            f"https://teams.evil.test/l/meetup-join/19%3ameeting_{MEETING}%40thread.v2/0",
        ),
        (
            f"https://lakeside.sharepoint.com/:x:/s/delivery/E{DRAWN[:45]}?e=4fXk3d",
            f"https://lakeside.evil.test/:x:/s/delivery/E{DRAWN[:45]}?e=4fXk3d",
        ),
        (
            f"https://outlook.office365.com/mail/inbox/id/AAQk{DRAWN}",
            f"https://outlook.evil.test/mail/inbox/id/AAQk{DRAWN}",
        ),
        (
            f"https://lh3.googleusercontent.com/a/ACg8oc{DRAWN[:44]}=s96-c",
            f"https://lh3.googleusercontent.evil.test/a/ACg8oc{DRAWN[:44]}=s96-c",
        ),
        (
            f"https://login.salesforce.com/services/oauth2/authorize?client_id=3MVG9{DRAWN}{DRAWN[:30]}",
            f"https://login.evil.test/services/oauth2/authorize?client_id=3MVG9{DRAWN}{DRAWN[:30]}",
        ),
        (
            f"https://graph.microsoft.com/v1.0/me/messages?$skiptoken={DRAWN}{DRAWN}&$top=50",
            f"https://graph.microsoft.com/v1.0/me/messages?q={DRAWN}{DRAWN}&$top=50",
        ),
        (f"http://ocsp.authority.test/{STATUS}", f"http://ocsp.authority.test/?d={STATUS}"),
    ],
)
def test_an_id_of_a_service_passes_at_the_service_alone(own, elsewhere):
    """An id as long as a key; a status request is the path, and reads as one."""
    assert not url_hides_data(own)
    assert url_hides_data(elsewhere)


def test_what_only_begins_as_such_an_id_is_told():
    """A meeting is one by its number, and a status request is read to its end."""
    coded = base64.b64encode(DRAWN[:36].encode()).decode()
    assert url_hides_data(
        f"https://teams.microsoft.com/l/meetup-join/19:meeting_{coded}@thread.v2/0"
    )
    assert url_hides_data(f"http://ocsp.authority.test/{STATUS[:40]}{DRAWN}")


def test_a_parameter_is_a_service_s_own_at_the_service_alone():
    """The passcode of a meeting, and nothing longer."""
    assert is_own_parameter("us02web.zoom.us", "pwd", "bXlQYXNzd29yZEhlcmVJc0xvbmcxMjM0.1")
    assert not is_own_parameter("zoom.us.evil.test", "pwd", "bXlQYXNzd29yZA.1")
    assert not is_own_parameter("zoom.us", "note", "bXlQYXNzd29yZA.1")
    assert not is_own_parameter("zoom.us", "pwd", DRAWN * 2)
