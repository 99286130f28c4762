"""A fleet with a pool in a real cluster, and the commands that are run against it.

fleet = ClusterFleet.create(tmp_path, installed_cluster, machine)
fleet.push(chat=service("chat", "phi"))
fleet.once()
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from reconciler.kube.objects import SERVICE_LABEL
from tests.support.cluster import Cluster
from tests.support.cluster_wipe import SYSTEM
from tests.support.fleets import document, model
from tests.support.reconciler import Finished, Machine, Running
from tests.support.repos import Repo
from tests.support.wait import PATIENCE_S, wait_for

PROD = "prod"
_NOWHERE = "https://127.0.0.1:1"
_SERVES = "app.kubernetes.io/component=server"
L4: dict[str, Any] = {
    "memory": "64Gi",
    "devices": [{"vendor": "NVIDIA", "arch": "sm_89", "memory": "23Gi"}],
}


@dataclass(frozen=True, slots=True)
class ClusterFleet:
    """One Fleet `home`, one pool `edge` in the cluster that the fleet calls `prod`, one Model."""

    repo: Repo
    cluster: Cluster
    machine: Machine

    @classmethod
    def create(cls, folder: Path, cluster: Cluster, machine: Machine) -> Self:
        """Push it; a node of the pool is there."""
        made = cls(Repo.create(folder / "git"), cluster, machine)
        pool = {"kubernetes": {"cluster": PROD, "nodeSelector": {"pool": "edge"}, "count": 2}}
        made.repo.publish(
            {
                "fleet.yaml": document("Fleet", "home", {}),
                "edge.yaml": document("FleetNode", "edge", pool | {"hardware": {"memory": "64Gi"}}),
                "phi.yaml": model("phi", sha256="ab" * 32),
            },
            "Begin",
        )
        cluster.add_node("edge-1", {"pool": "edge"})
        return made

    @property
    def words(self) -> tuple[str, ...]:
        """Which fleet, which cluster, and how it is reached."""
        return self._by(self.cluster.kubeconfig)

    def _by(self, kubeconfig: Path) -> tuple[str, ...]:
        named = ("--cluster", f"{PROD}=test", "--kubeconfig", str(kubeconfig))
        return ("-C", str(self.repo.remote), *named)

    def push(self, *, message: str = "change", **files: str | None) -> str:
        """NAME=TEXT is written to NAME.yaml, NAME=None removed; the full sha."""
        for name, text in files.items():
            path = self.repo.work / f"{name}.yaml"
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        return self.repo.commit(message)

    def run(self, *words: str) -> Finished:
        """`reconcile WORDS` to its end."""
        return self.machine.reconcile(*words, *self.words)

    def run_unanswered(self, *words: str) -> Finished:
        """As `run`, where no API server listens."""
        nobody = self.machine.root / "nobody"
        known = self.cluster.kubeconfig.read_text()
        nobody.write_text(known.replace(self.cluster.url, _NOWHERE))
        return self.machine.reconcile(*words, *self._by(nobody))

    def dry_run(self, *words: str) -> Finished:
        return self.run("--dry-run", *words)

    def once(self, *words: str) -> Finished:
        """Apply, and wait until all is ready. AssertionError with what it said: it was not."""
        done = self.run("--once", "--timeout", f"{PATIENCE_S:g}s", *words)
        assert done.code == 0, f"{done.code}\n{done.out}\n{done.err}"
        return done

    def loop(self, *words: str, kubeconfig: Path | None = None) -> Running:
        """`reconcile` as a loop, which applies."""
        running = self.machine.start(*self._by(kubeconfig or self.cluster.kubeconfig), *words)
        self.cluster_has_holder()
        return running

    def cluster_has_holder(self) -> None:
        """Wait until somebody has the fleet's Lease."""
        wait_for(lambda: bool(self.holder()), "a holder of the fleet's Lease")

    def holder(self) -> str:
        """Who applies the fleet now; empty: nobody."""
        text = self.cluster.kubectl(
            "get", "lease", "fleet-home", "-n", SYSTEM, "-o", "json", "--ignore-not-found"
        )
        spec = (json.loads(text) if text.strip() else {}).get("spec", {})
        return spec.get("holderIdentity") or ""

    def changes(self, *words: str) -> list[dict[str, Any]]:
        """Those of a dry run's JSON."""
        found: list[dict[str, Any]] = self.dry_run("-o", "json", *words).json()["changes"]
        return found

    def move_pod(self, service: str, host: str) -> None:
        """Kubernetes is told that the service's one pod is at an address of this machine."""
        words = ("get", "pods", "-l", f"{SERVICE_LABEL}={service},{_SERVES}")
        (pod,) = self.cluster.json(*words)["items"]
        status = {"status": {"podIP": host, "podIPs": [{"ip": host}]}}
        named = ("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge")
        self.cluster.kubectl(*named, "-p", json.dumps(status))

        def is_there() -> bool:
            of_it = f"kubernetes.io/service-name={service}"
            slices = self.cluster.json("get", "endpointslices", "-l", of_it)["items"]
            endpoints = [each for found in slices for each in found.get("endpoints") or ()]
            return any(host in each["addresses"] for each in endpoints)

        wait_for(is_there, "its address is behind the service's name")
