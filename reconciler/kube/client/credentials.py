"""The address of one API server, its CA and our credentials; renewed when they expire."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.kube.client.errors import AccessError

_EARLY_S = 60.0  # a token is renewed this long before it expires: clocks differ, calls take time
_FILE_S = 60.0  # how long the token of a file is used, as in client-go; a kubelet rotates it
ASK_AGAIN_S = 10.0  # between two renewals: a token may be refused, or expired, again and again


@dataclass(frozen=True, slots=True)
class Grant:
    """The result of a kubeconfig or a pod's service account. Certificates are PEM text."""

    server: str  # http(s)://host:port/path
    user: str = ""  # for messages; the server may use another name
    authorization: str | None = field(default=None, repr=False)
    ca: str | None = None  # None: the system's CAs
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    insecure: bool = False  # the user's own insecure-skip-tls-verify
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)  # its URL may carry a password
    token_file: str | None = None  # read again each minute instead of `authorization`
    expires_at: float | None = None  # time.time() after which `authorization` is invalid


class ClusterCredentials:
    """The current grant. Thread-safe; concurrent callers wait for one renewal."""

    def __init__(
        self,
        ask: Callable[[], Grant],
        *,
        ask_again_s: float = ASK_AGAIN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` may take seconds and raise AccessError: it reads files and may run a program."""
        self._ask = ask
        self._ask_again_s = ask_again_s
        self._clock = clock
        self._lock = threading.Lock()
        self._grant: Grant | None = None
        self._failure: AccessError | None = None
        self._asked_at = 0.0
        self._token: tuple[float, str] | None = None  # read when, and what

    def prefetch(self) -> None:
        """Start the renewal in a thread, while the program prepares its first call."""
        threading.Thread(target=self._prefetch, name="cluster-credentials", daemon=True).start()

    def current(self) -> Grant:
        """The grant to use now. Raises AccessError."""
        came_at = self._clock()
        with self._lock:
            if self._failure is not None and self._asked_at >= came_at:
                raise AccessError(str(self._failure))
            if self._grant is None or (_is_over(self._grant) and self._may_ask()):
                self._refresh()
            assert self._grant is not None
            return self._grant

    def authorization(self, grant: Grant) -> str | None:
        """The Authorization header. Raises AccessError if its file cannot be read."""
        if grant.token_file is None:
            return grant.authorization
        with self._lock:
            if self._token is None or self._clock() - self._token[0] > _FILE_S:
                self._token = (self._clock(), _read_token(Path(grant.token_file)))
            return f"Bearer {self._token[1]}"

    def refused(self, grant: Grant, authorization: str | None) -> bool:
        """The server rejected `authorization`; returns whether there is another one to try."""
        with self._lock:
            if self._grant is not grant:
                return True  # it was renewed since
            if grant.token_file is not None:
                token = _read_token(Path(grant.token_file))
                self._token = (self._clock(), token)
                return f"Bearer {token}" != authorization
            if not self._may_ask():
                return False
            self._refresh()
            return self._grant != grant

    def _may_ask(self) -> bool:
        return self._clock() - self._asked_at >= self._ask_again_s

    def _refresh(self) -> None:
        """A failure goes to all waiting callers: a renewal takes a process, and a dozen watches
        come at once."""
        try:
            self._grant, self._failure = self._ask(), None
        except AccessError as error:
            self._failure = error
            raise
        finally:
            self._asked_at = self._clock()

    def _prefetch(self) -> None:
        with self._lock, contextlib.suppress(AccessError):  # the next caller tries again
            if self._grant is None:
                self._refresh()


def _is_over(grant: Grant) -> bool:
    return grant.expires_at is not None and time.time() > grant.expires_at - _EARLY_S


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise AccessError(
            f"{path}: {reason}; the service account's token is read from it"
        ) from None
    if not token:
        raise AccessError(f"{path} is empty; the service account's token is read from it")
    return token
