"""A thread that renews the node's Lease: as long as it does, this agent writes its own slices."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from typing import TYPE_CHECKING

from agent.cluster.endpoints import OUTAGES
from agent.cluster.outage import Outage
from reconciler.kube.apiserver.errors import ClusterError, NotFound
from reconciler.kube.objects import SYSTEM_NAMESPACE
from reconciler.kube.publishing.heartbeat import RENEW_S, lease_manifest

if TYPE_CHECKING:
    from reconciler.kube.apiserver.client import ApiServer

_END_S = 2.0
_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews every 10 s until `close`, and leaves the Lease behind: it becomes stale by itself."""

    def __init__(self, api: ApiServer, node: str, manager: str, outage: Outage) -> None:
        self._api, self._node, self._manager, self._outage = api, node, manager, outage
        self._holder = f"{platform.node()}_{os.getpid()}"
        self._ending = threading.Event()
        self._told: str | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._renew()
            self._ending.wait(RENEW_S)

    def _renew(self) -> None:
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
            self._told = None

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            _log.warning("%s", text)
