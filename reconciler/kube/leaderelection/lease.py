"""One holder at a time, by a Lease object: the one process that applies a fleet to a cluster.

The rules and the times are those of client-go's leader election. A lease of another process is over
when *we* have seen it unchanged for as long as it is to last: the times written in it are of
another clock. A holder that cannot renew stops believing in itself before anybody else may do so
(renew_s < lease_s), on a clock that goes on while the machine sleeps. Every write carries the
resourceVersion that was read, so of two that are early only one gets it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import ClusterError, Conflict, NotFound
from reconciler.kube.kinds import LEASE
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_NEWS = f"{GROUP}/news-at"  # an annotation set by a standby that was notified
_TRIES = 5  # to write what others write at the same time
_JSON, _MERGE = "application/json", "application/merge-patch+json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds; the defaults are client-go's."""

    lease_s: int = 15  # how long others leave it alone after our last renewal
    renew_s: float = 10.0  # without a renewal for so long it is lost
    retry_s: float = 2.0  # between two renewals, and between two reads of another holder's Lease

    @classmethod
    def of(cls, lease_s: float) -> Self:
        """Another length, divided as client-go does."""
        return cls(int(lease_s), lease_s * 2 / 3, lease_s * 2 / 15)


class Holder:
    """Our claim to one Lease. `identity` must be of this process alone, such as host_uuid.

    with holder:                        # given back at the end
        if not holder.contend():
            raise ... f"{holder.holder} applies it now"
    """

    def __init__(
        self,
        api: ApiServer,
        name: str,
        namespace: str,
        identity: str,
        *,
        lost: Callable[[], None] = lambda: None,
        asked: Callable[[], None] = lambda: None,
        times: Times = Times(),
        manager: str = MANAGER,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`lost` is called once, in the renewing thread, when the lease is no longer ours; `asked`
        when a standby has news for us. `clock`: seconds that continue while the machine sleeps."""
        self.identity = identity
        self.holder = ""  # the holder at the last read; "": none
        self.transitions = 0  # how often it has changed hands
        self._api = api
        self._name, self._namespace = name, namespace
        self._lost = lost
        self._asked = asked
        self._times = times
        self._manager = manager
        self._clock = clock or _seconds
        # another holder's spec, and when we first saw it
        self._seen: tuple[Mapping[str, Any], float] | None = None
        self._lease: dict[str, Any] | None = None  # as we last wrote it; None: not ours
        self._renewed_at = 0.0
        self._warned: type[ClusterError] | None = None  # logged once, until it works again
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is ours now. Check before every write that needs it."""
        since_s = self._clock() - self._renewed_at
        return self._lease is not None and since_s < self._times.renew_s

    def acquire(self, stopped: threading.Event) -> bool:
        """Wait until it is ours, through any outage; False: stopped before."""
        while not stopped.is_set():
            try:
                if self.attempt():
                    return True
            except ClusterError as error:
                self._warn(error)
            except Exception:  # noqa: BLE001  a thread's edge: it is tried again
                _log.exception("lease %s/%s: a bug in this program", self._namespace, self._name)
            stopped.wait(self._times.retry_s)
        return False

    def contend(self, stopped: threading.Event | None = None) -> bool:
        """Take it if it has no live holder, waiting until a dead one's expires. False: `holder` is
        alive: it renewed meanwhile (or we were stopped). Raises ClusterError."""
        stopped = stopped or threading.Event()
        if self.attempt():
            return True
        seen = self._seen
        while not stopped.wait(self._times.retry_s / 2):
            if self.attempt():
                return True
            if seen is not None and self._seen is not None and seen[0] != self._seen[0]:
                return False
            seen = self._seen
        return False

    def attempt(self) -> bool:
        """Read it once, and claim it if it is free. Raises ClusterError."""
        if self.is_held:
            return True
        began = self._clock()
        live = self._read()
        if live is None:
            written = self._written(self._create)
        elif self._is_free(live["spec"], began):
            written = self._written(lambda: self._put(live, self._ours(live["spec"])))
        else:
            return False
        if written is None:  # another process was faster
            return False
        self._hold(written, began)
        return True

    def release(self) -> None:
        """Release it at once, for a standby. No effect if it is not ours."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        lease, self._lease, self._thread = self._lease, None, None
        if lease is None:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            self._put(lease, spec | {"renewTime": _stamp()})
        except ClusterError as error:  # it expires by itself
            _log.debug("lease %s/%s: %s", self._namespace, self._name, error)

    def ask(self) -> None:
        """Tell the holder that there is news; it notices with its next renewal. Raises
        ClusterError."""
        body = {"metadata": {"annotations": {_NEWS: _stamp()}}}
        self._call("PATCH", LEASE.path(self._namespace, self._name), body, _MERGE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _is_free(self, spec: Mapping[str, Any], now: float) -> bool:
        self.holder = str(spec.get("holderIdentity") or "")
        self.transitions = int(spec.get("leaseTransitions") or 0)
        if self.holder in ("", self.identity):  # ours: the response to our claim was lost
            return True
        if self._seen is None or self._seen[0] != spec:
            self._seen = spec, now
        lasts_s = float(spec.get("leaseDurationSeconds") or self._times.lease_s)
        return now - self._seen[1] > lasts_s

    def _hold(self, lease: dict[str, Any], began: float) -> None:
        self._lease, self._renewed_at = lease, began
        self.holder = self.identity
        self.transitions = lease["spec"]["leaseTransitions"]
        self._seen = self._warned = None
        self._stopped.set()  # the loss was noticed before its thread noticed it
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, args=(self._stopped,), name=f"lease-{self._name}", daemon=True
        )
        self._thread.start()

    def _renew(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._times.retry_s):
            if not self.is_held:  # the machine slept, or the API server was away
                break
            if not self._renew_once():
                break
        else:
            return
        self._lease = None
        self.holder = "" if self.holder == self.identity else self.holder
        by = f" to {self.holder}" if self.holder else ""
        _log.warning("lease %s/%s is lost%s", self._namespace, self._name, by)
        self._lost()

    def _renew_once(self) -> bool:
        """Whether it is still ours, as far as is known. A standby may write news to it at the same
        moment."""
        began = self._clock()
        for _ in range(_TRIES):
            assert self._lease is not None
            try:
                self._lease = self._put(self._lease, self._lease["spec"] | {"renewTime": _stamp()})
                self._renewed_at = began
                self._warned = None
                break
            except (Conflict, NotFound):
                if not self._is_still_ours():
                    return False
            except ClusterError as error:
                self._warn(error, "not renewed: ")
                break
            except Exception:  # noqa: BLE001  a thread's edge: the deadline decides
                _log.exception(
                    "lease %s/%s: a bug in this program: not renewed", self._namespace, self._name
                )
                break
        return True

    def _warn(self, error: ClusterError, what: str = "") -> None:
        """An outage is retried every two seconds, and logged once."""
        level = logging.DEBUG if type(error) is self._warned else logging.WARNING
        self._warned = type(error)
        _log.log(level, "lease %s/%s: %s%s", self._namespace, self._name, what, error)

    def _is_still_ours(self) -> bool:
        """After a conflict: it was annotated, taken or deleted."""
        try:
            live = self._read()
            lease = self._lease
            if live is None and lease is not None:
                made = self._create(lease["spec"])
                self._lease = made
                return True
        except Conflict:
            return False
        except ClusterError:
            return True  # not known: the deadline decides
        assert live is not None
        self.holder = str(live["spec"].get("holderIdentity") or "")
        if self.holder != self.identity:
            return False
        before, self._lease = self._lease, live
        if _news(live) != _news(before or {}):
            self._asked()
        return True

    def _ours(self, before: Mapping[str, Any]) -> dict[str, Any]:
        is_other = before.get("holderIdentity") != self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._times.lease_s,
            "acquireTime": _stamp() if is_other else before.get("acquireTime") or _stamp(),
            "renewTime": _stamp(),
            "leaseTransitions": int(before.get("leaseTransitions") or 0)
            + (is_other and bool(before)),
        }

    def _written(self, write: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return write()
        except Conflict:
            return None

    def _read(self) -> dict[str, Any] | None:
        try:
            lease: dict[str, Any] = self._call("GET", LEASE.path(self._namespace, self._name))
        except NotFound:
            return None
        return lease

    def _create(self, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        lease = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {MANAGED_BY_LABEL: MANAGER},  # so that it is removed with an installation
            },
            "spec": {**(spec or self._ours({})), "renewTime": _stamp()},
        }
        made: dict[str, Any] = self._call("POST", LEASE.path(self._namespace), lease)
        return made

    def _put(self, lease: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
        """Conflict: it has changed since `lease`."""
        path = LEASE.path(self._namespace, self._name)
        put: dict[str, Any] = self._call("PUT", path, {**lease, "spec": dict(spec)})
        return put

    def _call(self, method: str, path: str, body: object = None, kind: str = _JSON) -> Any:  # noqa: ANN401 - JSON
        query = {} if method == "GET" else {"fieldManager": self._manager}
        timeout_s = self._times.renew_s / 2  # so that a second attempt fits
        return self._api.raw(
            method, path, query=query, body=body, content_type=kind, timeout_s=timeout_s
        )


def _news(lease: Mapping[str, Any]) -> str:
    """When a standby last reported news."""
    return str((lease.get("metadata", {}).get("annotations") or {}).get(_NEWS, ""))


def _seconds() -> float:
    """A clock that continues while the machine sleeps: Linux's monotonic clock does not."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _stamp() -> str:
    """Now as a MicroTime."""
    return timestamp(time.time(), "microseconds")
