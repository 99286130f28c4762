"""The TLS of an agent: a pinned certificate, or an authority; and our own certificate."""

from __future__ import annotations

import functools
import hashlib
import socket
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import AgentError
from reconciler.http.connect import authorities, file_ages, secured, time_left
from reconciler.http.exchange import HttpPolicy

if TYPE_CHECKING:
    import ssl


_MAKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe, and who we are. With `cert_sha256` exactly that certificate is accepted,
    self-signed or not; else what the system or `ca_file` vouches for."""

    cert_sha256: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def policy_of(trust: Trust, most_bytes: int) -> HttpPolicy:
    """The policy for an agent: no proxy, no redirect."""
    return HttpPolicy(most_bytes, secure=partial(_secured, trust))


def _secured(trust: Trust, plain: socket.socket, host: str, deadline: float) -> ssl.SSLSocket:
    context = tls_context(trust)
    plain.settimeout(time_left(deadline))
    secure = secured(plain, context, host)
    if trust.cert_sha256 is not None:
        shown = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
        if shown != trust.cert_sha256:
            secure.close()
            raise AgentError(
                f"its certificate has sha256 {shown}, and the FleetNode states"
                f" {trust.cert_sha256}: if its agent made a new one, put that into"
                " spec.agent.certSha256, otherwise the connection is being intercepted"
            )
    return secure


def tls_context(trust: Trust) -> ssl.SSLContext:
    """One for all agents, as long as the files that it is made of stay as they are: to load a
    system's authorities takes 20 ms of CPU, and there may be thousands of agents."""
    files: tuple[Path | str | None, ...] = (trust.cert_file, trust.key_file)
    if trust.cert_sha256 is None:
        files += (trust.ca_file,) if trust.ca_file else authorities()
    states = file_ages(files)
    is_pinned = trust.cert_sha256 is not None
    with _MAKING:  # threads that begin together would make one each
        return _context(replace(trust, cert_sha256=None), is_pinned, states)


@functools.lru_cache(maxsize=4)
def _context(trust: Trust, is_pinned: bool, _states: tuple[object, ...]) -> ssl.SSLContext:
    import ssl

    if is_pinned:  # the pin decides, right after the handshake
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=trust.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.cert_file is not None:
        context.load_cert_chain(trust.cert_file, trust.key_file)
    return context
