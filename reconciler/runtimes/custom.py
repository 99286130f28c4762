"""Any program as a service, in pods: an image, and what its author says of it. Pure.

Nothing is known of the program. So it speaks no API, takes no memory that could be worked out, and
loads nothing of ours, unless its author says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from reconciler.api.meta import Spec
from reconciler.api.quantity import Bytes, parse_bytes
from reconciler.fleet.command import Command, Probe
from reconciler.memory import MLX, MemorySettings
from reconciler.runtimes.runtime import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    RERANK,
    Api,
    EngineProgram,
    NodeFacts,
    Runtime,
)

if TYPE_CHECKING:
    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload

_APIS: Mapping[str, tuple[Api, ...]] = {
    "chat": (CHAT, COMPLETIONS),
    "embeddings": (EMBEDDINGS,),
    "rerank": (RERANK,),
}
_DEFAULT_PATH = "/health"
_SECRET = re.compile(r".*(TOKEN|SECRET|PASSWORD|KEY)", re.IGNORECASE)
_MODEL_VARIABLE = "FLEET_MODEL"  # where a Model that was fetched for the program is


class CustomOptions(Spec):
    """spec.runtimeOptions of custom."""

    probe_path: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Path that answers 200 once the program serves. Unset: the one of"
            f" probeOverrides, else {_DEFAULT_PATH}.",
        ),
    ] = None
    speaks: Annotated[
        Literal["none", "chat", "embeddings", "rerank"],
        Field(description="What of OpenAI's API it answers, for status and clients."),
    ] = "none"
    memory: Annotated[
        Bytes | None,
        Field(
            description="What one of it takes: of its devices, in equal parts, else of the machine."
            " A size such as 12Gi. Unset: it is not checked."
        ),
    ] = None


def command(workload: Workload, node: NodeFacts) -> Command:
    """Its arguments alone: the program is the image's own, or spec.command."""
    settings = workload.settings
    stated = {k.removeprefix("env."): v for k, v in settings.items() if k.startswith("env.")}
    fetched = [(_MODEL_VARIABLE, node.model_path(model)) for model in workload.models]
    port: int | None = settings["containerPort"]
    own_port = node.port if port is None else str(port)
    return Command(
        argv=tuple(settings["args"]),
        env={**dict(fetched), **stated},
        # Whatever it may list, nothing says under which names.
        probe=Probe(path=_probe_path(settings, own_port), models_path=None),
        port=port,
        in_image=True,
    )


def _probe_path(settings: Mapping[str, Any], own_port: str) -> str:
    """The companion asks over HTTP, as a kubelet would: where that is told a path, it is this."""
    if path := settings["runtimeOptions.probePath"]:
        return str(path)
    overrides = settings.get("probeOverrides")
    for probe in ("readiness", "startup", "liveness"):
        asks = _part(_part(overrides, probe), "httpGet")
        path, port = _part(asks, "path"), str(_part(asks, "port") or own_port)
        # the container's only port has a name, too
        if isinstance(path, str) and (port == own_port or not port.isdecimal()):
            return path
    return _DEFAULT_PATH


def _part(written: object, name: str) -> object:
    """What Kubernetes checks may be of any shape before."""
    return written.get(name) if isinstance(written, dict) else None


def stated_memory(settings: Mapping[str, Any]) -> int | None:
    memory = settings["runtimeOptions.memory"]
    return None if memory is None else parse_bytes(memory)


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return MLX


def check_env(name: str) -> str | None:
    """It reaches this program alone, which its author chose."""
    if _SECRET.fullmatch(name):
        return f"{name} cannot be set: secrets do not belong in a manifest"
    return None


RUNTIME = Runtime(
    name="custom",
    formats=frozenset({"custom", "gguf", "mlx", "safetensors"}),
    serves_many=False,
    needs_model=False,
    options=CustomOptions,
    engine=EngineProgram(
        programs=(),
        install_hint="its program is in an image, so that it runs in pods only",
        tells_version=False,
    ),
    command=command,
    memory_settings=memory_settings,
    stated_memory=stated_memory,
    fields=frozenset({"args", "containerPort", "devices", "env", "gpuLayers", "runtimeOptions"}),
    # Of what runs anybody may have written the settings.
    apis=lambda settings: _APIS.get(str(settings.get("runtimeOptions.speaks")), ()),
    check_env=check_env,
    variables=r"[A-Za-z_][A-Za-z0-9_]*",
    aliases=("generic",),
)
