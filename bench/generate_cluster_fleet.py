"""Write a synthetic fleet for one cluster: `python -m bench.generate_cluster_fleet DIR N`.

N autoscaled services on one pool, which states no cluster, as in a fleet that has but one. Each is
four objects there: its own document, a Deployment, a Service and a HorizontalPodAutoscaler; and
there is one model for every ten services.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.generate_fleet import HEAD, PER_MODEL

CLUSTER = "prod"

FLEET = """kind: Fleet
metadata:
  name: {name}
spec: {{}}
"""
POOL = """kind: FleetNode
metadata:
  name: {name}
spec:
  kubernetes:
    nodeSelector: {{pool: gpu}}
  hardware:
    memory: 64Gi
"""
MODEL = """kind: Model
metadata:
  name: model-{n:05}
  namespace: {name}
spec:
  source: https://models.example.org/model-{n:05}.gguf
  format: gguf
"""
SERVICE = """kind: InferenceService
metadata:
  name: service-{n:05}
  namespace: {name}
  labels:
    team: team-{team}
spec:
  modelRef: model-{model:05}
  runtime: llama-server
  contextSize: {context}
  parallelSlots: 2
  flashAttention: auto
  rollout:
    drainTimeout: 30s
"""
AUTOSCALED = """\
  autoscaling:
    minReplicas: 1
    maxReplicas: 3
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("services", type=int)
    options = parser.parse_args()
    generate(options.directory, "bench", options.services)


def generate(
    root: Path, name: str, services: int, *, autoscaled: bool = True, context: int = 4096
) -> None:
    """Write the fleet below `root`, which may exist. `name` is the Fleet's, its pool's and its
    namespace's; `context` is the least context of a service. Equal arguments give equal bytes."""
    for folder in ("models", "services"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "fleet.yaml").write_text(HEAD + FLEET.format(name=name))
    (root / "pool.yaml").write_text(HEAD + POOL.format(name=name))
    for n in range(-(-services // PER_MODEL)):
        text = MODEL.format(n=n, name=name)
        (root / "models" / f"model-{n:05}.yaml").write_text(HEAD + text)
    for n in range(services):
        text = SERVICE.format(
            n=n, name=name, team=n % 13, model=n // PER_MODEL, context=context * (1 + n % 4)
        )
        text += AUTOSCALED if autoscaled else ""
        (root / "services" / f"service-{n:05}.yaml").write_text(HEAD + text)


if __name__ == "__main__":
    main()
