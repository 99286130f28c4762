"""Fleets made up by chance, in two revisions each: valid ones, and ones with the mistakes that
people make. Pure: one seed, the same bytes.

before, after = random_fleet(Random(7))
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.fleets import document, model, node, service

Files = dict[str, str]
Spec = dict[str, Any]

_DEVICES: tuple[Spec, ...] = (
    {"vendor": "NVIDIA", "arch": "sm_89", "memory": "23Gi"},
    {"vendor": "AMD", "arch": "gfx1100", "memory": "24Gi"},
    {"vendor": "Apple", "product": "M4", "memory": "unified"},
)
_SOURCES: tuple[Spec, ...] = (
    {"source": "https://models.test/tiny.gguf"},
    {"source": "hf://org/phi4-GGUF/phi4-q4.gguf@0123abc", "sha256": "ab" * 32},
    {"source": "hf://org/qwen3-mlx@0123abc"},
    {"source": "hf://org/qwen3-8b@0123abc"},
    {"source": "oci://registry.test/models/gemma:1"},
    {"source": "models/absent.gguf"},
)
_SETTINGS: dict[str, tuple[Any, ...]] = {
    "runtime": ("llama-server", "vllm", "mlx-server", "mlx-lm", "tgi"),
    "replicas": (0, 1, 2),
    "suspend": (True, False),
    "contextSize": (512, 8192, 65536),
    "parallelSlots": (1, 4),
    "cacheTypeK": ("f16", "q8_0"),
    "flashAttention": (True, "auto"),
    "gpuLayers": (0, 20),
    "promptCache": (0, "1Gi"),
    "devices": (1, 2),
    "sleepIdle": ("15m",),
    "endpoint": ({"port": 8080}, {"port": 9000}, {"type": "NodePort"}),
    "memory": ({"budget": "4Gi"}, {"mode": "warn"}),
    "priority": ("high", "batch"),
    "rollout": ({"drainTimeout": "90s"}, {"onUpgrade": "restart"}),
    "env": ([{"name": "A", "value": "1"}],),
    "extraArgs": (["--temp", "0.2"], ["--port", "1"]),
    "runtimeOptions": ({"loadMode": "none"}, {"embeddings": True}),
    "autoscaling": ({"minReplicas": 1, "maxReplicas": 3},),
}


def random_fleet(chance: Random) -> tuple[Files, Files]:
    """A revision, and the one that follows it."""
    before = _declared(chance)
    after = dict(before)
    for _ in range(chance.randint(1, 4)):
        chance.choice(_EDITS)(after, chance)
    if chance.random() < 0.4:
        chance.choice(_MISTAKES)(after, chance)
    return before, after


def _declared(chance: Random) -> Files:
    files = {"fleet.yaml": document("Fleet", "home", _policy(chance))}
    for number in range(chance.randint(1, 3)):
        files[f"nodes/n{number}.yaml"] = _node(number, chance)
    for number in range(chance.randint(1, 3)):
        files[f"models/m{number}.yaml"] = model(f"m{number}", **chance.choice(_SOURCES))
    for number in range(chance.randint(1, 6)):
        files[f"services/s{number}.yaml"] = _service(number, files, chance)
    return files


def _policy(chance: Random) -> Spec:
    return chance.choice(
        ({}, {"prune": {"maxCount": 1}}, {"allowedHosts": ["models.test"]}, {"drift": "report"})
    )


def _node(number: int, chance: Random) -> str:
    hardware: Spec = {"memory": chance.choice(("4Gi", "16Gi", "64Gi"))}
    if chance.random() < 0.5:
        hardware["devices"] = [chance.choice(_DEVICES)]
    spec: Spec = {"hardware": hardware}
    if chance.random() < 0.4:
        pool = {"cluster": chance.choice(("prod", "lab")), "count": chance.randint(1, 3)}
        pool["cache"] = chance.choice(("ephemeral", "claim:models", "pvc:50Gi,fast,RWX"))
        return document("FleetNode", f"n{number}", {"kubernetes": pool, **spec})
    if chance.random() < 0.5:
        spec["runtimes"] = chance.sample(("llama-server", "llamacpp-router", "mlx-lm"), 2)
    if chance.random() < 0.2:
        spec[chance.choice(("unschedulable", "drain"))] = True
    return node(f"n{number}", **spec)


def _service(number: int, files: Files, chance: Random) -> str:
    chosen = chance.sample(sorted(_SETTINGS), chance.randint(0, 4))
    spec = {key: chance.choice(_SETTINGS[key]) for key in chosen}
    if chance.random() < 0.8:
        spec["placement"] = {"nodes": [_one("nodes", files, chance)]}
    names = [_one("models", files, chance)]
    if chance.random() < 0.2:
        entries = [{"name": name} for name in {*names, _one("models", files, chance)}]
        routed = {"runtime": "llamacpp-router", "models": sorted(entries, key=str)}
        return service(f"s{number}", None, **spec | routed)
    return service(f"s{number}", names[0], **spec)


def _one(folder: str, files: Files, chance: Random) -> str:
    """The name of an object that is there."""
    return chance.choice(_paths(folder, files)).partition("/")[2].removesuffix(".yaml")


def _paths(folder: str, files: Files) -> list[str]:
    return [path for path in files if path.startswith(f"{folder}/")]


def _change(files: Files, chance: Random) -> None:
    path = chance.choice(_paths("services", files) or ["services/s0.yaml"])
    files[path] = _service(int(path[-6]), files, chance)


def _add(files: Files, chance: Random) -> None:
    files["services/s9.yaml"] = _service(9, files, chance)


def _remove(files: Files, chance: Random) -> None:
    for path in _paths("services", files)[: chance.randint(1, 2)]:
        del files[path]


def _change_node(files: Files, chance: Random) -> None:
    path = chance.choice(_paths("nodes", files))
    files[path] = _node(int(path[-6]), chance)


def _replace_in(files: Files, chance: Random, old: str, new: str) -> None:
    path = chance.choice(sorted(files))
    files[path] = files[path].replace(old, new, 1)


_Edit = Callable[[Files, Random], None]
_EDITS: tuple[_Edit, ...] = (_change, _change, _add, _remove, _change_node)


def _misspell_kind(files: Files, chance: Random) -> None:
    _replace_in(files, chance, "kind: ", "kind: X")


def _misspell_field(files: Files, chance: Random) -> None:
    path = chance.choice(sorted(files))
    files[path] += "  contextsize: 4\n"


def _break_syntax(files: Files, chance: Random) -> None:
    path = chance.choice(sorted(files))
    files[path] += "\tx: [\n"


def _lose_a_model(files: Files, chance: Random) -> None:
    del files[chance.choice(_paths("models", files))]


def _lose_a_node(files: Files, chance: Random) -> None:
    del files[chance.choice(_paths("nodes", files))]


def _say_it_twice(files: Files, chance: Random) -> None:
    path = chance.choice(sorted(files))
    files["twice.yaml"] = files[path]


def _of_another_type(files: Files, chance: Random) -> None:
    files["services/s8.yaml"] = service("s8", "m0", contextSize="much", replicas=-1)


def _of_tomorrow(files: Files, chance: Random) -> None:
    _replace_in(files, chance, "/v1alpha1", "/v9")


_MISTAKES: tuple[_Edit, ...] = (
    *(_misspell_kind, _misspell_field, _break_syntax, _lose_a_model),
    *(_lose_a_node, _say_it_twice, _of_another_type, _of_tomorrow),
)
