"""What a cluster that is broken at random is told to have: a pool, two machines beside it, of which
one follows the cluster and one git, and another fleet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.beside_cluster import own_address
from tests.support.fleets import document, model, node

POOL, MAC, TEAM = ("amber", "basil", "cedar", "delta"), ("mica", "onyx"), "team"
MINI = ("quartz",)  # on a machine that the cluster only reads
SPARE = "ember"  # of the pool, and not there at first
CONTEXTS = (256, 384, 512)
FOREIGN = "foreign"


@dataclass(slots=True)
class Declared:
    """One service as it is in git."""

    name: str
    context: int
    replicas: int = 1

    @property
    def namespace(self) -> str:
        """One of the pool has a namespace of its own, which may go."""
        return TEAM if self.name == POOL[0] else "default"

    @property
    def text(self) -> str:
        beside = {**dict.fromkeys(MAC, "mac"), **dict.fromkeys(MINI, "mini")}.get(self.name)
        spec: dict[str, Any] = {"contextSize": self.context}
        spec |= {"placement": {"nodes": [beside or "edge"]}}
        spec |= {} if beside else {"replicas": self.replicas}
        spec |= {"modelRef": "tiny" if beside else "phi"}
        return document("InferenceService", self.name, spec, namespace=self.namespace)


def first_files(tiny: Path, mac_port: int, mini_port: int) -> dict[str, str | bytes]:
    """All but the services."""
    pool = {"kubernetes": {"cluster": "prod", "nodeSelector": {"pool": "edge"}, "count": 2}}
    agent = {
        "url": f"http://127.0.0.1:{mac_port}",
        "hostIP": own_address(),
        "expose": "open",
        "clusters": ["prod"],
    }
    phi = {"source": "https://models.test/phi.gguf", "sha256": "ab" * 32}
    return {
        "fleet.yaml": document("Fleet", "home", {}),
        "edge.yaml": document("FleetNode", "edge", pool | {"hardware": {"memory": "64Gi"}}),
        "mac.yaml": node("mac", agent=agent, hardware={"memory": "16Gi"}),
        "mini.yaml": node(
            "mini",
            agent={"url": f"http://127.0.0.1:{mini_port}"},
            hardware={"memory": "16Gi"},
        ),
        "phi.yaml": model("phi", sha256="ab" * 32),
        "team-phi.yaml": document("Model", "phi", phi, namespace=TEAM),
        "tiny.yaml": model("tiny", source=f"file://{tiny}"),
    }


def other_files() -> dict[str, str | bytes]:
    """Another fleet's, in the same cluster."""
    pool = {"cluster": "prod", "nodeSelector": {"pool": "edge"}, "count": 1}
    theirs = {"kubernetes": pool, "hardware": {"memory": "8Gi"}}
    spec = {"source": "https://models.test/theirs.gguf", "sha256": "cd" * 32}
    chat = {"modelRef": "theirs", "placement": {"nodes": ["theirs"]}}
    return {
        "fleet.yaml": document("Fleet", "other", {}),
        "node.yaml": document("FleetNode", "theirs", theirs),
        "model.yaml": document("Model", "theirs", spec, namespace=FOREIGN),
        "chat.yaml": document("InferenceService", "theirs", chat, namespace=FOREIGN),
    }
