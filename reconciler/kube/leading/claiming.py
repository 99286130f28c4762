"""Whether a command may apply a fleet now, or another process does so already."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.inventory import parent_name
from reconciler.kube.kinds import LEASE
from reconciler.kube.objects import SYSTEM_NAMESPACE, ObjectId

if TYPE_CHECKING:
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.kube.leading.leading import Leadership

LONGEST_S = 20.0  # a holder that died is over after 15 s
_LOOK_S = 0.2


def refused(apis: Iterable[ApiServer], leadership: Leadership, fleet: str) -> str:
    """Wait until the fleet's Leases are ours. Why not, where somebody alive has one: it renews it;
    empty: they are. A cluster without an answer says so when it is looked at."""
    deadline = time.monotonic() + LONGEST_S
    for api in apis:
        first: object = None
        while not leadership.leads(api.name):
            try:
                renewed = _renewal(api, fleet)
            except ClusterError:
                break
            alive = None not in (first, renewed) and first != renewed
            if not leadership.leads(api.name) and (alive or time.monotonic() >= deadline):
                return f"{leadership.why_not(api.name)}: let that one do it, or stop it first"
            first = first or renewed
            time.sleep(_LOOK_S)
    return ""


def _renewal(api: ApiServer, fleet: str) -> tuple[str, str] | None:
    """Who renewed the Lease last, and when; None: nobody has it."""
    name = ObjectId(LEASE.group, LEASE.kind, SYSTEM_NAMESPACE, parent_name(fleet))
    spec = (api.get(name) or {}).get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    return (holder, str(spec.get("renewTime"))) if holder else None
