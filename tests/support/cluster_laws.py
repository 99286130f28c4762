"""What holds in a cluster that was broken and is whole again, and what may never have happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import GROUP
from reconciler.kube.client.api import ApiServer
from reconciler.kube.objects import FLEET_LABEL, INPUTS_ANNOTATION, OWNED_KINDS
from tests.support.cluster_declared import FOREIGN, MAC, MINI, Declared
from tests.support.cluster_wipe import SYSTEM
from tests.support.reconciler import Machine
from tests.support.repos import Repo


@dataclass
class ClusterLaws:
    """They look past whatever is broken between the programs and the cluster, and only look."""

    api: ApiServer
    repo: Repo
    mac: Machine
    mini: Machine
    declared: dict[str, Declared] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  # services that may be created again
    foreign: dict[str, str] = field(default_factory=dict)  # object -> resourceVersion
    uids: dict[str, str] = field(default_factory=dict)  # of Deployments, as it converged last
    pids: dict[str, int] = field(default_factory=dict)  # beside the cluster, as it converged last

    def missing(self) -> str | None:
        """What is not as declared; None: nothing."""
        inventory = self._one("configmaps", SYSTEM, "fleet-home")
        head, data = self.repo.head(), (inventory or {}).get("data") or {}
        if data.get("revision") != head:
            return f"applied is {data.get('revision')}, not {head}"
        return (
            self._missing_in_pool()
            or self._missing_documents()
            or self._missing_on(self.mac, MAC)
            or self._missing_on(self.mini, MINI)
            or self._missing_slice()
            or self._leftover()
        )

    def hold(self) -> None:
        """Whatever was broken and healed. AssertionError with what happened."""
        self._hold_foreign()
        self._hold_places()
        self.touched.clear()

    def deployments(self) -> dict[str, Mapping[str, Any]]:
        found = self._list("deployments", f"{FLEET_LABEL}=home")
        return {item["metadata"]["name"]: item for item in found}

    def foreign_now(self) -> dict[str, str]:
        """All that is not the fleet's own, and stands still: object -> resourceVersion. Its
        documents go with the definitions, and are somebody's to apply again."""
        kinds = ("configmaps", "services", "deployments", "jobs", "endpointslices")
        return {
            f"{kind}/{item['metadata']['namespace']}/{item['metadata']['name']}": str(
                item["metadata"]["resourceVersion"]
            )
            for kind in kinds
            for item in self._list(kind, f"{FLEET_LABEL}!=home")
            if item["metadata"]["name"] in (FOREIGN, "theirs", "fleet-other")
        }

    def _missing_in_pool(self) -> str | None:
        live = self.deployments()
        wanted = {name: own for name, own in self.declared.items() if name not in MAC + MINI}
        if live.keys() != wanted.keys():
            return f"Deployments {sorted(live)} instead of {sorted(wanted)}"
        for name, own in wanted.items():
            inputs = json.loads(live[name]["metadata"]["annotations"].get(INPUTS_ANNOTATION, "{}"))
            if inputs.get("settings", {}).get("contextSize") != own.context:
                return f"{name} has not the context {own.context}: {inputs}"
            if live[name]["spec"]["replicas"] != own.replicas:
                return f"{name} has not {own.replicas} replicas"
            if live[name]["status"].get("readyReplicas") != own.replicas:
                return f"the pods of {name} are not ready"
        return None

    def _missing_documents(self) -> str | None:
        services = {o["metadata"]["name"]: o for o in self._list("inferenceservices", "")}
        theirs = {"theirs"}
        if services.keys() - theirs != self.declared.keys() - set(MINI):
            return f"InferenceServices {sorted(services)}"
        for name, live in services.items():
            ready = (live.get("status") or {}).get("conditions") or ()
            states = {c["type"]: c["status"] for c in ready}
            if states.get("Ready") != "True" and name not in theirs:
                return f"{name} is not Ready: {ready}"
        return None

    def _missing_on(self, machine: Machine, names: tuple[str, ...]) -> str | None:
        found, where = machine.instances(), machine.root.name
        if found.keys() != set(names):
            return f"on {where} there are {sorted(found)}"
        for name in names:
            if not found[name].ready:
                return f"{name} does not answer on {where}"
            if found[name].inputs["settings"]["contextSize"] != self.declared[name].context:
                return f"{name} has not the context {self.declared[name].context} on {where}"
        return None

    def _missing_slice(self) -> str | None:
        slices = self._list("endpointslices", f"{GROUP}/node=mac")
        ready = {s["metadata"]["name"] for s in slices if s["endpoints"][0]["conditions"]["ready"]}
        wanted = {f"{name}-mac" for name in MAC}
        return None if ready == wanted else f"slices {sorted(ready)}"

    def _leftover(self) -> str | None:
        """What is left of a service that nobody declares."""
        for kind in ("services", "jobs", "configmaps"):
            for item in self._list(kind, f"{FLEET_LABEL}=home"):
                name = (item["metadata"]["labels"]).get(f"{GROUP}/inference-service")
                if name is not None and name not in self.declared:
                    return f"{kind} {item['metadata']['name']} is left of {name}"
        return None

    def _hold_foreign(self) -> None:
        """Nobody else's object was written."""
        now = self.foreign_now()
        changed = {o: (v, now.get(o)) for o, v in self.foreign.items() if now.get(o) != v}
        assert not changed, f"somebody else's objects were touched: {changed}"

    def _hold_places(self) -> None:
        """What was not deleted by hand was never created again, and no model beside was stopped."""
        uids = {n: str(d["metadata"]["uid"]) for n, d in self.deployments().items()}
        for name, uid in uids.items():
            if name in self.uids and name not in self.touched:
                assert uid == self.uids[name], f"Deployment {name} was created again"
        self.uids = uids
        found = self.mac.instances() | self.mini.instances()
        pids = {name: i.pid for name, i in found.items() if i.pid}
        for name, pid in pids.items():
            if name in self.pids and name not in self.touched:
                assert pid == self.pids[name], f"{name} has another process"
        self.pids = pids

    def _list(self, plural: str, selector: str) -> tuple[Mapping[str, Any], ...]:
        kind = next(row for row in OWNED_KINDS.values() if row.plural == plural)
        return tuple(self.api.list(kind, selector=selector).items)

    def _one(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        found = [o for o in self._list(plural, "") if o["metadata"]["name"] == name]
        return next((o for o in found if o["metadata"]["namespace"] == namespace), None)
