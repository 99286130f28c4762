"""One reconciler applies a fleet to a cluster; the rest stand by and take over at once.

A standby does everything else: it reads, observes and plans, so that it is warm when it takes over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.kube.client.errors import ClusterError
from reconciler.kube.inventory import parent_name
from reconciler.kube.leaderelection.lease import Holder, Times
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, SYSTEM_NAMESPACE
from reconciler.kube.server.board import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.kube.client.api import ApiServer

CLIENT_GO = Times()
_log = logging.getLogger(__name__)


class Leadership:
    """Our claims to a fleet's Lease in each of its clusters."""

    def __init__(
        self,
        apis: Iterable[ApiServer],
        identity: str,
        changed: Callable[[], None],
        times: Times = CLIENT_GO,
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        """In threads, `changed` is called whenever a Lease is won or lost, and `asked` when a
        standby reports news."""
        self._apis = tuple(apis)
        self._identity = identity
        self._changed = changed
        self._times = times
        self._asked = asked
        self._fleet = ""
        self._claims: Mapping[str, _LeaseClaim] = {}

    def follow(self, fleet: str) -> None:
        """Claim the Leases of the fleet of that name, and no others."""
        if fleet == self._fleet:
            return
        self.close()
        self._fleet = fleet
        self._claims = {
            api.name: _LeaseClaim(
                api, fleet, self._identity, self._changed, self._asked, self._times
            )
            for api in self._apis
        }
        for claim in self._claims.values():
            claim.start()

    @property
    def leads_anywhere(self) -> bool:
        """Whether this process applies to one of the clusters."""
        return any(self.leads(api.name) for api in self._apis)

    def leads(self, cluster: str) -> bool:
        """Whether we may write there now."""
        claim = self._claims.get(cluster)
        return claim is not None and claim.holder.is_held

    def write_refusal(self, cluster: str) -> str | None:
        """Why we may not write there now."""
        if self.leads(cluster):
            return None
        holder = self._holder(cluster) or "nobody yet"
        return f"this process stands by: {holder} applies the fleet to cluster {cluster}"

    def pass_on(self) -> None:
        """Tell the leader that there is news. Returns at once."""
        others = [claim for claim in self._claims.values() if not claim.holder.is_held]
        if others:
            threading.Thread(target=_ask, args=(others,), name="pass-on", daemon=True).start()

    def _holder(self, cluster: str) -> str:
        claim = self._claims.get(cluster)
        return claim.holder.holder if claim else ""

    @property
    def role(self) -> Role:
        """The role of this process, for its HTTP API."""
        leases = [self.leads(api.name) for api in self._apis]
        others = (
            self._holder(a.name) for a, leads in zip(self._apis, leases, strict=True) if not leads
        )
        return Role(all(leases), next((name for name in others if name), ""))

    def close(self) -> None:
        """Release everything at once."""
        claims, self._claims, self._fleet = self._claims, {}, ""
        for claim in claims.values():
            claim.close()


def _ask(claims: list[_LeaseClaim]) -> None:
    for claim in claims:
        try:
            claim.holder.ask()
        except ClusterError as error:  # the leader polls, and notices a little later
            _log.debug("news not passed on: %s", error)


class _LeaseClaim:
    """One Lease: awaited, renewed, awaited again once it is lost."""

    def __init__(
        self,
        api: ApiServer,
        fleet: str,
        identity: str,
        changed: Callable[[], None],
        asked: Callable[[], None],
        times: Times,
    ) -> None:
        self._api = api
        self._changed = changed
        self._stopped = threading.Event()
        self._lost = threading.Event()
        self.holder = Holder(
            api,
            parent_name(fleet),
            SYSTEM_NAMESPACE,
            identity,
            lost=self._lost.set,
            asked=asked,
            times=times,
        )
        self._thread = threading.Thread(target=self._run, name=f"claim-{api.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._lost.set()
        self._thread.join(10.0)
        self.holder.release()

    def _run(self) -> None:
        self._guarded(self._make_namespace)
        while self.holder.acquire(self._stopped):
            _log.info("cluster %s: this process applies the fleet now", self._api.name)
            self._guarded(self._changed)
            self._lost.wait()
            self._lost.clear()
            if self._stopped.is_set():
                return
            self._guarded(self._changed)

    def _guarded(self, step: Callable[[], None]) -> None:
        """If the thread ended because of a bug, it would keep the Lease for ever, or never claim it
        again."""
        try:
            step()
        except Exception:  # noqa: BLE001  a thread's edge: the claim goes on
            _log.exception("cluster %s: a bug in this program", self._api.name)

    def _make_namespace(self) -> None:
        """The Lease's namespace. An installation creates it; a loop outside the cluster needs it,
        too."""
        made = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": SYSTEM_NAMESPACE, "labels": {MANAGED_BY_LABEL: MANAGER}},
        }
        path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
        try:
            self._api.raw("GET", path)
        except ClusterError:
            try:
                self._api.create(made)
            except ClusterError as error:  # the claim reports it, and waits
                _log.debug("cluster %s: %s", self._api.name, error)
