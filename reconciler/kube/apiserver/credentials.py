"""Where one API server is, whom to believe there, and who we are; asked again when it ran out."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.kube.apiserver.errors import AccessError

_EARLY_S = 60.0  # before it runs out a token is asked for again: clocks differ, calls last
_FILE_S = 60.0  # how long the token of a file is believed, as client-go does; a kubelet rotates it
ASK_AGAIN_S = 10.0  # between two questions: a token may be refused, or over, again and again


@dataclass(frozen=True, slots=True)
class Grant:
    """What a kubeconfig or a pod's service account came to. Certificates are PEM text."""

    server: str  # http(s)://host:port/path
    user: str = ""  # how messages name us; the server may know us by another name
    authorization: str | None = field(default=None, repr=False)
    ca: str | None = None  # None: whom the system believes
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    insecure: bool = False  # the user's own insecure-skip-tls-verify
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)  # its URL may carry a password
    token_file: str | None = None  # read again each minute instead of `authorization`
    expires_at: float | None = None  # time.time() after which `authorization` is worth nothing


class Credentials:
    """The grant in force. Thread-safe; whoever comes while it is asked for waits for the answer."""

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
        """Ask in a thread, beside what the program has to do before its first call."""
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
        """The header that says who we are. Raises AccessError: its file cannot be read."""
        if grant.token_file is None:
            return grant.authorization
        with self._lock:
            if self._token is None or self._clock() - self._token[0] > _FILE_S:
                self._token = (self._clock(), _read_token(Path(grant.token_file)))
            return f"Bearer {self._token[1]}"

    def refused(self, grant: Grant, authorization: str | None) -> bool:
        """The server knows nobody by `authorization`: whether there is another one to try."""
        with self._lock:
            if self._grant is not grant:
                return True  # somebody else has asked since
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
        """A failure is told to all who waited for it: asking takes a process, and a dozen watches
        come at once."""
        try:
            self._grant, self._failure = self._ask(), None
        except AccessError as error:
            self._failure = error
            raise
        finally:
            self._asked_at = self._clock()

    def _prefetch(self) -> None:
        with self._lock, contextlib.suppress(AccessError):  # whoever calls next asks again
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
