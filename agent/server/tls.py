"""The agent's certificate and token: created once, in `tls/` of the state directory.

The certificate is self-signed: a fleet states its fingerprint (`spec.agent.certSha256`). For a new
certificate or token, remove the files and restart the agent; or put your own there.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import secrets
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import StateError
from reconciler.atomic import atomic_write

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_YEARS = 10  # pinned by its fingerprint: its dates do not matter
_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Tls:
    """What a server off loopback presents and requires. The token is never logged."""

    context: ssl.SSLContext
    token: bytes
    cert_sha256: str


def certificate_sha256(root: Path) -> str | None:
    """The fingerprint of this machine's certificate (sha256 of its DER, hex), as in the FleetNode;
    None if there is none yet, or it cannot be read."""
    try:
        return _fingerprint((root / "tls" / "cert.pem").read_text())
    except (OSError, ValueError):
        return None


def open_tls(root: Path, names: Iterable[str], client_ca: Path | None) -> Tls:
    """The files in the state directory, created where missing. `names` are host names and addresses
    of this machine; a client with a certificate by `client_ca` needs no token.

    Raises StateError with what to do.
    """
    folder = root / "tls"
    cert, key, token = folder / "cert.pem", folder / "key.pem", folder / "token"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not cert.exists():
            _make(cert, key, tuple(names))
        if not token.exists():
            atomic_write(token, secrets.token_urlsafe(32).encode() + b"\n")
        secret = token.read_bytes().strip()
        context = _context(cert, key, client_ca)
        fingerprint = _fingerprint(cert.read_text())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        place = getattr(error, "filename", None) or folder
        raise StateError(
            f"{place}: {getattr(error, 'strerror', None) or error}; mend it, or remove {folder} to"
            " have a new certificate and token made"
        ) from error
    if len(secret) < _SHORTEST_TOKEN:
        raise StateError(f"{token}: too short for a token; remove it to have a new one made")
    return Tls(context, secret, fingerprint)


def _context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise ValueError(f"{cert.name} and {key.name} are no pair ({error.reason})") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise StateError(f"--client-ca-file {client_ca}: {error.strerror or error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL  # without one, the token must do
    return context


def _fingerprint(pem: str) -> str:
    """The fingerprint of the first certificate. ValueError if there is none."""
    begin, end = pem.find("-----BEGIN CERTIFICATE-----"), pem.find("-----END CERTIFICATE-----")
    if begin < 0 or end < 0:
        raise ValueError("holds no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[begin:end] + "-----END CERTIFICATE-----\n")
    return hashlib.sha256(der).hexdigest()


def _make(cert: Path, key: Path, names: tuple[str, ...]) -> None:
    """A key and a certificate for it; the certificate last, so that it never exists alone."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(secret.public_key(), names).sign(secret, hashes.SHA256())
    pem = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    atomic_write(key, pem)  # 0600
    atomic_write(cert, made.public_bytes(serialization.Encoding.PEM))


def _certificate(
    public: ec.EllipticCurvePublicKey, names: tuple[str, ...]
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet-agent")])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
        (x509.SubjectAlternativeName([_general(name) for name in dict.fromkeys(names)]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (identifier, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
