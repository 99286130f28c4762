"""mlx_lm.server, the HTTP server of the mlx-lm package, for MLX models. Pure.

It takes a request's `model` as a path or as a name on a hub, and loads that in place of what it has
(mlx-lm 0.32.2). So it runs without network, with an empty cache of the hub, in a directory where
the Model's name is the only one that leads to a model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from reconciler.api.meta import Spec
from reconciler.fleet.command import Command, Probe
from reconciler.memory import MLX, MemorySettings
from reconciler.runtimes import arguments
from reconciler.runtimes.arguments import JSON_OBJECT, Allowed
from reconciler.runtimes.runtime import (
    EngineProgram,
    NodeFacts,
    Runtime,
    ServingState,
    listed,
    lists_all,
    names_in,
)

if TYPE_CHECKING:
    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload

ALLOWED = arguments.by_name(
    (
        Allowed(("--temp",)),
        Allowed(("--top-p",)),
        Allowed(("--top-k",)),
        Allowed(("--min-p",)),
        Allowed(("--max-tokens",)),
        Allowed(("--chat-template-args",), JSON_OBJECT),
        Allowed(("--use-default-chat-template",), None),
        Allowed(("--prefill-step-size",)),
        Allowed(("--prompt-cache-size",)),
    )
)
_REFUSED = {
    "--model": "set modelRef instead",
    "--host": "the node's FleetNode decides the address (spec.agent.expose)",
    "--port": "set endpoint.port instead",
    "--decode-concurrency": "set parallelSlots instead",
    "--prompt-concurrency": "set parallelSlots instead",
    "--prompt-cache-bytes": "set promptCache instead",
    "--kv-bits": "set runtimeOptions.kvBits instead",
    "--trust-remote-code": "it runs programs out of the model's folder",
    "--adapter-path": "it reads files of the node that the fleet does not own",
    "--draft-model": "it reads files of the node that the fleet does not own",
}


class MlxLmOptions(Spec):
    """spec.runtimeOptions of mlx-lm."""

    kv_bits: Annotated[
        Literal[4, 8] | None,
        Field(
            description="Bits of a quantised context. Requests are then served one at a time."
            " Unset: full precision."
        ),
    ] = None


def command(workload: Workload, node: NodeFacts) -> Command:
    """Its model is named as clients name it: the server compares the two as text."""
    (model,) = workload.models
    settings = workload.settings
    slots, bits = str(settings["parallelSlots"]), settings["runtimeOptions.kvBits"]
    trial = {"model": model.name, "prompt": ".", "max_tokens": 1}
    return Command(
        argv=(
            *node.binary,
            *("--model", model.name),
            *("--host", node.host),
            *("--port", node.port),
            *("--allowed-origins", "http://localhost"),
            *("--decode-concurrency", slots),
            *("--prompt-concurrency", slots),
            *("--prompt-cache-bytes", str(settings["promptCache"])),
            *(("--kv-bits", str(bits)) if bits else ()),
            *arguments.as_argv(settings["extraArgs"], ALLOWED),
        ),
        env={
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            # Its list of models is an error where the cache of the hub is not a folder.
            "HF_HUB_CACHE": node.directory,
            "HF_HOME": node.directory,
        },
        links={model.name: node.model_path(model)},
        probe=Probe(trial=("/v1/completions", json.dumps(trial)), connections=True),
    )


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return replace(MLX, prompt_cache_bytes=workload.settings["promptCache"])


def serving(document: object, names: tuple[str, ...]) -> ServingState:
    """It lists its model by the path of the folder, which we name like the Model."""
    paths = [word for entry in listed(document) for word in names_in(entry)]
    return lists_all({"data": [{"id": PurePosixPath(path).name} for path in paths]}, names)


def check_args(args: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Why arguments are refused: (index, reason) pairs; empty when all are fine."""
    return arguments.refused(args, ALLOWED, partial(arguments.reason, _REFUSED))


RUNTIME = Runtime(
    name="mlx-lm",
    formats=frozenset({"mlx", "safetensors"}),
    serves_many=False,
    options=MlxLmOptions,
    engine=EngineProgram(
        programs=("mlx_lm.server",),
        install_hint="install it with `pip install mlx-lm` (on Linux: `pip install 'mlx[cpu]'"
        " mlx-lm`)",
        package="mlx-lm",
    ),
    command=command,
    memory_settings=memory_settings,
    fields=frozenset({"parallelSlots", "promptCache", "extraArgs", "runtimeOptions"}),
    serving=serving,
    check_args=check_args,
    check_env=arguments.unlisted_variable,
    arguments=arguments.names_of(ALLOWED),
    counts_requests=True,
)
