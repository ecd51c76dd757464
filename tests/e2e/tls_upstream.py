"""A tool server behind TLS, its own authority, and a raw client of forward proxies."""

import datetime as dt
import ipaddress
import socket
import ssl

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.e2e.raw_server import RawClient
from tests.e2e.running_guard import Upstream, http_bytes

NAME = "localhost"
"""The one name that resolves everywhere; the policy calls it internal and opens its address."""

KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


class TlsUpstream(Upstream):
    """An upstream that remembers the bytes on the wire and, apart, what was in its TLS."""

    def __init__(self, directory, *names):
        self.authority = directory / "upstream-ca.pem"
        chain = issue(self.authority, *(names or (NAME, "127.0.0.1")))
        self.connections = 0
        self.hellos = bytearray()
        """What clients have said in the clear, before there was any TLS."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(chain)
        super().__init__()

    def _begun(self, client):
        self.connections += 1
        self.hellos += client.recv(65536, socket.MSG_PEEK)
        return self.context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)

    def _serve(self, client):
        assert isinstance(client, ssl.SSLSocket)
        client.do_handshake()
        super()._serve(client)


def issue(authority, *names, usage=ExtendedKeyUsageOID.SERVER_AUTH):
    """Write a new authority's certificate, and return the chain file of whom it vouches for."""
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def builder(subject, public):
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(root).public_key(public)
        made = made.serial_number(x509.random_serial_number()).not_valid_before(start)
        return made.not_valid_after(start + dt.timedelta(days=30))

    ca = builder(root, root_key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
    usages = [flag in {"key_cert_sign", "crl_sign"} for flag in KEY_USAGES]
    ca = ca.add_extension(x509.KeyUsage(*usages), True)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
    root_certificate = ca.add_extension(subject_key, False).sign(root_key, hashes.SHA256())
    leaf = builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), key.public_key())
    leaf = leaf.add_extension(x509.SubjectAlternativeName([_name(n) for n in names]), False)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([usage]), False)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), False
    )
    certificate = leaf.sign(root_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    authority.write_bytes(root_certificate.public_bytes(pem))
    chain = authority.with_name(f"{authority.stem}-chain.pem")
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + certificate.public_bytes(pem))
    return chain


def _name(text):
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        uri, mail = x509.UniformResourceIdentifier, x509.RFC822Name
        return (uri if "://" in text else mail if "@" in text else x509.DNSName)(text)


class Tunnel(RawClient):
    """A client of a forward proxy."""

    def connect(self, authority, *headers):
        """Ask for a tunnel and return the status."""
        named = {"method": "CONNECT", "target": authority, "host": authority}
        self.socket.sendall(http_bytes(b"", *headers, **named))
        self.reply = self.head()
        return int(self.reply.split(b" ", 2)[1]) if self.reply else 0

    def start_tls(self, trust, name=NAME, alpn=()):
        """Begin TLS in the tunnel, trusting one authority only."""
        context = ssl.create_default_context(cafile=str(trust))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        self.socket = context.wrap_socket(self.socket, server_hostname=name)


def post_http2(tunnel, authority, body, *headers):
    """POST over HTTP/2 in a tunnel whose TLS has agreed on it; -1 is a reset, else the status."""
    assert isinstance(tunnel.socket, ssl.SSLSocket)
    assert tunnel.socket.selected_alpn_protocol() == "h2"
    unchecked = h2.config.H2Configuration(
        client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    machine = h2.connection.H2Connection(unchecked)
    machine.initiate_connection()
    pseudo = {":method": "POST", ":scheme": "https", ":authority": authority, ":path": "/v2"}
    machine.send_headers(1, [*pseudo.items(), *headers])
    machine.send_data(1, body, end_stream=True)
    tunnel.socket.sendall(machine.data_to_send())
    while data := tunnel.socket.recv(65536):
        for event in machine.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                return int(dict(event.headers)[b":status"])
            if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                return -1
        tunnel.socket.sendall(machine.data_to_send())
    return 0
