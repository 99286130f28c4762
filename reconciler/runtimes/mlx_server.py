"""mlx-server, a Swift server for MLX models on Apple machines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from reconciler.api.meta import Spec
from reconciler.fleet.command import Command, Probe
from reconciler.memory import MLX, MemorySettings
from reconciler.runtimes import arguments
from reconciler.runtimes.runtime import CHAT, EngineProgram, NodeFacts, Runtime

if TYPE_CHECKING:
    from reconciler.fleet.model_file import ModelFile
    from reconciler.fleet.workload import Workload


class MlxOptions(Spec):
    """spec.runtimeOptions of mlx-server."""

    tool_call_format: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$",
            description="How the model writes tool calls. Unset: the server guesses.",
        ),
    ] = None


def command(workload: Workload, node: NodeFacts) -> Command:
    """Its whole command line: the server has no context size, cache type or batch."""
    (model,) = workload.models
    tool_calls = workload.settings["runtimeOptions.toolCallFormat"]
    return Command(
        argv=(
            *node.binary,
            *("--model", node.model_path(model)),
            *("--host", node.host),
            *("--port", node.port),
            *("--max-slots", str(workload.settings["parallelSlots"])),
            *(("--tool-call-format", tool_calls) if tool_calls else ()),
        ),
        # /v1/models names the folder, not the Model, so it cannot tell one server from another.
        probe=Probe(models_path=None),
    )


def check_args(args: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """It has no other flags: refuse them before the process does."""
    reason = "mlx-server takes no extra arguments; remove it"
    return tuple((index, reason) for index in range(len(args)))


def memory_settings(workload: Workload, model: ModelFile) -> MemorySettings:
    return MLX


RUNTIME = Runtime(
    name="mlx-server",
    formats=frozenset({"mlx", "safetensors"}),
    serves_many=False,
    options=MlxOptions,
    engine=EngineProgram(
        programs=("mlx-server",),
        install_hint="mlx-server runs on Apple silicon only: build"
        " github.com/defilantech/mlx-server with Xcode and put it on PATH",
        tells_version=False,
    ),
    command=command,
    memory_settings=memory_settings,
    fields=frozenset({"parallelSlots", "runtimeOptions"}),
    apis=lambda _: (CHAT,),
    check_args=check_args,
    check_env=arguments.unlisted_variable,
)
