"""Write a fleet of N services, one file each: `python bench/generate_fleet.py DIR N`.

Nodes with memory for all of them, and one model for every ten services. Models come over https, so
nothing is downloaded and nothing is read but YAML.
"""

from __future__ import annotations

import argparse
from pathlib import Path

HEAD = "apiVersion: inference.llmkube.dev/v1alpha1\n"
PER_NODE = 50
PER_MODEL = 10

NODE = """kind: FleetNode
metadata:
  name: node-{n:04}
  labels: {{site: site-{site}, rack: "{n}"}}
spec:
  agent: {{}}
  runtimes: [llama-server]
  defaultRuntime: llama-server
  hardware:
    os: linux
    arch: x86_64
    cpu: {{cores: 64}}
    memory: 4Ti
"""
MODEL = """kind: Model
metadata:
  name: model-{n:05}
spec:
  source: https://models.example.org/model-{n:05}.gguf
  format: gguf
"""
SERVICE = """kind: InferenceService
metadata:
  name: service-{n:05}
  labels:
    team: team-{team}
spec:
  modelRef: model-{model:05}
  placement:
    nodes: [node-{node:04}]
  contextSize: {context}
  parallelSlots: 2
  flashAttention: auto
  promptCache: 128Mi
  resources:
    requests:
      cpu: 2
  endpoint:
    type: ClusterIP
  rollout:
    drainTimeout: 30s
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("services", type=int)
    options = parser.parse_args()
    generate(options.directory, options.services)


def generate(root: Path, services: int) -> None:
    """Write the fleet below `root`, which may exist. Equal arguments give equal bytes."""
    for folder in ("nodes", "models", "services"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for n in range(-(-services // PER_NODE)):
        text = NODE.format(n=n, site=n % 7)
        (root / "nodes" / f"node-{n:04}.yaml").write_text(HEAD + text)
    for n in range(-(-services // PER_MODEL)):
        (root / "models" / f"model-{n:05}.yaml").write_text(HEAD + MODEL.format(n=n))
    for n in range(services):
        text = SERVICE.format(
            n=n, team=n % 13, model=n // PER_MODEL, node=n // PER_NODE, context=4096 * (1 + n % 4)
        )
        (root / "services" / f"service-{n:05}.yaml").write_text(HEAD + text)


if __name__ == "__main__":
    main()
