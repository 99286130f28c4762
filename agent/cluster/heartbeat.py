"""A thread that renews the node's Lease: as long as it does, this agent writes its own slices."""

from __future__ import annotations

import logging
import os
import platform
import random
import time
from typing import TYPE_CHECKING

from agent.cluster.endpoints import OUTAGES
from agent.cluster.outage import Outage
from reconciler.kube.client.errors import ClusterError, NotFound
from reconciler.kube.endpoints.heartbeat import RENEW_S, lease_manifest, renewal_pause_s
from reconciler.kube.objects import SYSTEM_NAMESPACE
from reconciler.worker import Worker

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews every 10 s or so until `close`, and leaves the Lease behind: it becomes stale."""

    def __init__(self, api: ApiServer, node: str, manager: str, outage: Outage) -> None:
        self._api, self._node, self._manager, self._outage = api, node, manager, outage
        self._holder = f"{platform.node()}_{os.getpid()}"
        self._logged: str | None = None
        self._worker = Worker("heartbeat", self._renew, every_s=RENEW_S, what="heartbeat")

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._worker.close()

    def _renew(self) -> float:
        manifest = lease_manifest(self._node, self._holder, time.time())
        try:
            self._api.apply(manifest, manager=self._manager, force=True)
        except OUTAGES as error:
            self._outage.failed(error)
        except NotFound:
            self._say(f"no heartbeat: the cluster has no namespace {SYSTEM_NAMESPACE}")
        except ClusterError as error:
            self._say(f"no heartbeat: {error}")
        else:
            self._outage.answered()
            self._logged = None
        return renewal_pause_s(random.random())  # noqa: S311 - not for secrets

    def _say(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            _log.warning("%s", text)
