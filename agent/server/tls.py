"""The agent's certificate and token: created once, in `tls/` of the state directory.

The certificate is self-signed: a fleet states its fingerprint (`spec.agent.certSha256`). A damaged
file, and a certificate of ours outside its validity, is replaced. A certificate of the user's is
only reported.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import logging
import secrets
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import StateError, error_text
from reconciler.atomic import atomic_write
from reconciler.ownfile import Damaged, Unreadable, moved_aside, read_bytes

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_NAME = "fleet-agent"  # subject and issuer of what we make
_YEARS = 10
_EARLIEST = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)  # a clock that shows less is wrong
_SHORTEST_TOKEN = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate on disk. `is_ours`: this program made it. Dates are in epoch seconds."""

    sha256: str
    not_before: float
    not_after: float
    is_ours: bool

    def date_problem(self, now: float) -> str | None:
        """Return why the certificate is outside its validity. A clock that is certainly wrong
        judges nothing: a board without a battery begins in the past."""
        if now < _EARLIEST.timestamp():
            return None
        if now > self.not_after:
            return f"its certificate expired on {_day(self.not_after)}"
        if now < self.not_before:
            return f"its certificate is valid from {_day(self.not_before)} on"
        return None


class Tls:
    """What a server off loopback presents and requires. The token is never logged."""

    def __init__(self, files: TlsFiles, client_ca: Path | None, now: float) -> None:
        """Raises StateError, OSError and ValueError."""
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files = files
        self._reported: Certificate | None = None
        self.certificate = files.certificate(now)
        self.token = files.token()
        self.context = _context(files.cert, files.key, client_ca)

    def check(self, now: float) -> None:
        """Replace a certificate of ours outside its validity, for connections from now on. Report
        one of the user's. Either is logged once."""
        problem, files = self.certificate.date_problem(now), self._files
        if problem is None:
            return
        is_new = self.certificate != self._reported
        self._reported = self.certificate
        if not self.certificate.is_ours:
            if is_new:
                remedy = f"replace it and {files.key.name}, or remove {files.folder} and restart"
                _log.warning("%s: %s; %s", files.cert, problem, remedy)
            return
        before = self.certificate
        try:
            made = files.make(now)
            self.context.load_cert_chain(files.cert, files.key)
        except OSError as error:
            if is_new:
                why = error_text(error, files.cert)
                _log.warning("%s: %s, and cannot be made anew: %s", files.cert, problem, why)
            return
        self.certificate = made
        _log.warning("%s: %s, and is made anew; %s", files.cert, problem, _pin(made, before))


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files in `tls/`. `names` are host names and addresses of this machine."""

    folder: Path
    names: tuple[str, ...]

    @property
    def cert(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"

    def certificate(self, now: float) -> Certificate:
        """Return the certificate: a new one where there is none, or ours or its key is damaged.
        Raises OSError, and ValueError if a certificate of the user's has no key of its own."""
        known = None
        try:
            known = read_bytes(self.cert, _parse)
            if known is None:
                return self.make(now)
            _context(self.cert, self.key, None)
        except Unreadable:
            raise
        except FileNotFoundError:
            damage = f"{self.key.name} is gone"
        except ValueError as error:
            damage = str(error)
        else:
            return known
        if known is not None and not known.is_ours:
            raise ValueError(damage)
        aside = moved_aside(self.cert, damage)
        made = self.make(now)
        _log.warning("%s; it is made anew; %s", aside, _pin(made, known))
        return made

    def make(self, now: float) -> Certificate:
        """Make a key and a certificate for it. Raises OSError."""
        _make(self.cert, self.key, self.names, now)
        return _parse(self.cert.read_bytes())

    def token(self) -> bytes:
        """Return the token: a new one where there is none, or what is there can be none. Raises
        OSError."""
        path = self.folder / "token"
        try:
            token = read_bytes(path, _token)
        except Unreadable:
            raise
        except Damaged as error:
            lost = "a new token is made; give it to those who ask this agent"
            _log.warning("%s", moved_aside(path, str(error), lost))
            token = None
        if token is None:
            token = secrets.token_urlsafe(32).encode()
            atomic_write(path, token + b"\n")
        return token


def certificate_sha256(root: Path) -> str | None:
    """The fingerprint of this machine's certificate (sha256 of its DER, hex), as in the FleetNode;
    None if there is none yet, or it cannot be read."""
    try:
        return _fingerprint((root / "tls" / "cert.pem").read_text())
    except (OSError, ValueError):
        return None


def open_tls(root: Path, names: Iterable[str], client_ca: Path | None, now: float) -> Tls:
    """The files in the state directory, created where missing and replaced where damaged. `names`
    are host names and addresses of this machine; a client with a certificate by `client_ca` needs
    no token.

    Raises StateError with what to do.
    """
    files = TlsFiles(root / "tls", tuple(names))
    try:
        tls = Tls(files, client_ca, now)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        place = getattr(error, "filename", None) or files.folder
        raise StateError(
            f"{place}: {getattr(error, 'strerror', None) or error}; mend it, or remove"
            f" {files.folder} to have a new certificate and token made"
        ) from error
    tls.check(now)
    return tls


def _pin(made: Certificate, before: Certificate | None) -> str:
    was = f" (it was {before.sha256})" if before else ""
    return f"its certSha256 is now {made.sha256}{was}: state that in the FleetNode"


def _day(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat()


def _token(data: bytes) -> bytes:
    token = data.strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"it is shorter than {_SHORTEST_TOKEN} characters")
    if not token.isascii() or not token.decode("ascii").isprintable():
        raise ValueError("it has characters that no token has")
    return token


def _parse(data: bytes) -> Certificate:
    """Raises ValueError if the data is not a certificate in PEM."""
    pem = data.decode("ascii")
    fingerprint = _fingerprint(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=_first(pem))
    except ssl.SSLError as error:
        raise ValueError(f"it is no certificate ({error.reason})") from error
    if shown := context.get_ca_certs():  # as ours is
        facts: dict[str, Any] = shown[0]
        own = ((("commonName", _NAME),),)
        return Certificate(
            fingerprint,
            ssl.cert_time_to_seconds(facts["notBefore"]),
            ssl.cert_time_to_seconds(facts["notAfter"]),
            is_ours=facts["subject"] == facts["issuer"] == own,
        )
    from cryptography import x509  # takes memory

    certificate = x509.load_pem_x509_certificate(_first(pem).encode())
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Certificate(fingerprint, begin.timestamp(), end.timestamp(), is_ours=False)


def _context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise ValueError(f"{cert.name} and {key.name} are no pair") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise StateError(f"--client-ca-file {client_ca}: {error.strerror or error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL  # without one, the token must do
    return context


def _fingerprint(pem: str) -> str:
    """The fingerprint of the first certificate. ValueError if there is none."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first(pem))).hexdigest()


def _first(pem: str) -> str:
    """The first certificate of a PEM text. ValueError if there is none."""
    begin, end = pem.find("-----BEGIN CERTIFICATE-----"), pem.find("-----END CERTIFICATE-----")
    if begin < 0 or end < 0:
        raise ValueError("holds no certificate")
    return pem[begin:end] + "-----END CERTIFICATE-----\n"


def _make(cert: Path, key: Path, names: tuple[str, ...], now: float) -> None:
    """A key and a certificate for it; the certificate last, so that it never exists alone."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(secret.public_key(), names, now).sign(secret, hashes.SHA256())
    pem = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    atomic_write(key, pem)  # 0600
    atomic_write(cert, made.public_bytes(serialization.Encoding.PEM))


def _certificate(
    public: ec.EllipticCurvePublicKey, names: tuple[str, ...], made_at: float
) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.fromtimestamp(made_at, datetime.UTC)
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
        .not_valid_before(min(now - datetime.timedelta(days=1), _EARLIEST))  # clocks differ
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
