"""Whether a command may apply a fleet now, or another process is applying it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from reconciler.kube.client.errors import ClusterError
from reconciler.kube.inventory import parent_name
from reconciler.kube.kinds import LEASE
from reconciler.kube.leaderelection.leadership import CLIENT_GO
from reconciler.kube.objects import SYSTEM_NAMESPACE, ObjectId

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.leaderelection.leadership import Leadership

_SLACK_S = 5.0  # after the Lease of a holder that died
_MOST_S = 600.0  # whatever a Lease states
_LOOK_S = 0.2


def claim_refusal(apis: Iterable[ApiServer], leadership: Leadership, fleet: str) -> str | None:
    """Acquire the fleet's Leases. Returns why not if a live process holds one, which renews it. A
    cluster that does not respond is reported by its observation."""
    began = time.monotonic()
    for api in apis:
        first: _Renewal | None = None
        while not leadership.leads(api.name):
            try:
                renewed = _renewal(api, fleet)
            except ClusterError:
                break
            alive = None not in (first, renewed) and first != renewed
            lasts_s = renewed.lasts_s if renewed else CLIENT_GO.lease_s
            late = time.monotonic() - began > min(lasts_s, _MOST_S) + _SLACK_S
            if not leadership.leads(api.name) and (alive or late):
                return f"{leadership.write_refusal(api.name)}: let that one do it, or stop it first"
            first = first or renewed
            time.sleep(_LOOK_S)
    return None


class _Renewal(NamedTuple):
    holder: str
    time: str
    lasts_s: float


def _renewal(api: ApiServer, fleet: str) -> _Renewal | None:
    """The last renewal of the Lease and its holder; None if it has none."""
    name = ObjectId(LEASE.group, LEASE.kind, SYSTEM_NAMESPACE, parent_name(fleet))
    spec = (api.get(name) or {}).get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    lasts_s = float(spec.get("leaseDurationSeconds") or CLIENT_GO.lease_s)
    return _Renewal(holder, str(spec.get("renewTime")), lasts_s) if holder else None
