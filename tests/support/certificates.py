"""Certificates that only a test vouches for: of an authority, and of servers that are their own."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_CURVE = ec.SECP256R1()


class Authority:
    """Its certificate is at `cert`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._key = folder, ec.generate_private_key(_CURVE)
        self._name = _name(f"authority {folder.name}")
        self.cert = folder / "ca.pem"
        made = _unsigned(self._name, self._name, self._key.public_key(), ca=True)
        _write(self.cert, made, self._key)

    def client(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate and of its key."""
        key = ec.generate_private_key(_CURVE)
        cert, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        _write(cert, _unsigned(_name(name), self._name, key.public_key(), ca=False), self._key)
        _write_key(key_file, key)
        return cert, key_file


def self_signed(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """The files of a certificate for an address, which is its own authority, and of its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key, name = ec.generate_private_key(_CURVE), _name("fleet-agent")
    named = x509.IPAddress(ipaddress.ip_address(address))
    made = _unsigned(name, name, key.public_key(), ca=True).add_extension(
        x509.SubjectAlternativeName([named]), critical=False
    )
    cert, key_file = folder / "cert.pem", folder / "key.pem"
    _write(cert, made, key)
    _write_key(key_file, key)
    return cert, key_file


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )


def _write(path: Path, made: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> None:
    signed = made.sign(key, hashes.SHA256())
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
