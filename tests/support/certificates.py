"""An authority of a test's own, and certificates for clients by it."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Its certificate is at `cert`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority {folder.name}")
        self.cert = folder / "ca.pem"
        self._write(self.cert, self._name, self._key.public_key(), ca=True)

    def client(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        self._write(cert, _name(name), key.public_key(), ca=False)
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert, key_file

    def _write(
        self, path: Path, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool
    ) -> None:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
