"""What can be said of how a model is served: of a service, and of each model of a router. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from reconciler.api.field import PROCESS, WORKLOAD, Purpose
from reconciler.api.meta import Name, Spec
from reconciler.api.speculative import SpeculativeDecoding

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
ContextSize = Annotated[int, Field(ge=128, le=2**27)]
Slots = Annotated[int, Field(ge=1, le=1024)]
Batch = Annotated[int, Field(ge=1, le=65536)]
MOST_LAYERS = 4096
Layers = Annotated[int, Field(ge=0, le=MOST_LAYERS)]
Args = Annotated[tuple[str, ...], Field(max_length=64)]
AUTO = "auto"
# What ends a value or begins a comment in the file of a router is in no name of a tensor.
_PATTERN = r'[!-"$-+\--:<>-~]+=[A-Za-z]{2,16}[0-9]{0,2}'
OVERRIDES = f"^{_PATTERN}(,{_PATTERN})*$"
Override = Annotated[str, Field(max_length=1024, pattern=OVERRIDES)]


class ModelSettings(Spec):
    """What can be said per service, and per model of a router. Unset: the service's, then ours."""

    context_size: Annotated[
        ContextSize | None,
        Purpose(PROCESS, default=8192),
        Field(description="Tokens of context, shared by all slots: prompts and answers together."),
    ] = None
    parallel_slots: Annotated[
        Slots | None,
        Purpose(PROCESS, default=1),
        Field(description="Requests that are answered at the same time. They share contextSize."),
    ] = None
    cache_type_k: Annotated[
        CacheType | None,
        Purpose(PROCESS, default="f16"),
        Field(
            description="Number format of the keys that the context keeps in memory (KV cache). A"
            " smaller one takes less memory, and answers may become less accurate."
        ),
    ] = None
    cache_type_v: Annotated[
        CacheType | None,
        Purpose(PROCESS, default="f16"),
        Field(description="The same for the values of the KV cache."),
    ] = None
    gpu_layers: Annotated[
        Layers | None,
        Purpose(PROCESS),
        Field(
            description="Layers of the model that lie on devices; 0: none. Unset: all of them where"
            " the node has a device."
        ),
    ] = None
    moe_cpu_layers: Annotated[
        Layers | Literal["auto"] | None,
        Purpose(PROCESS, default=0, noted_unstated=False),
        Field(
            alias="moeCPULayers",
            description="The machine keeps the experts of the first so many layers, and devices the"
            " rest: a mixture of experts then takes less of their memory. `auto`: the fewest with"
            " which the model has room on the devices, were it alone there.",
        ),
    ] = None
    moe_cpu_offload: Annotated[
        bool | None,
        Purpose(PROCESS, default=False, noted_unstated=False),
        Field(
            alias="moeCPUOffload",
            description="The same for all layers, whatever moeCPULayers says.",
        ),
    ] = None
    tensor_overrides: Annotated[
        tuple[Override, ...] | None,
        Purpose(PROCESS, noted_unstated=False),
        Field(
            max_length=64,
            description="PATTERN=BUFFER for tensors that are to lie elsewhere than their layers:"
            " those with the pattern in their name, of which the first one decides. CPU is the"
            " machine; CUDA0, ROCm1 and the like are devices.",
        ),
    ] = None
    no_kv_offload: Annotated[
        bool | None,
        Purpose(PROCESS, default=False, noted_unstated=False),
        Field(
            description="Keeps the context (KV cache) in the machine's memory, also of layers that"
            " lie on devices. Answers come slower."
        ),
    ] = None
    batch_size: Annotated[
        Batch | None,
        Purpose(PROCESS, default=2048),
        Field(description="Tokens of prompts that the engine takes up at once, at most."),
    ] = None
    u_batch_size: Annotated[
        Batch | None,
        Purpose(PROCESS, default=512),
        Field(
            description="Tokens that are computed in one step, and never more than batchSize. More"
            " read a long prompt faster, and take more memory."
        ),
    ] = None
    chat_template: Annotated[
        str | None,
        Purpose(PROCESS, affects_speed=False, noted_unstated=False),
        Field(
            min_length=1,
            max_length=65536,
            description="Chat template in place of the model's own: a file of the repository, by"
            " its path from the top of the fleet's folder, or the text itself.",
        ),
    ] = None
    speculative_decoding: Annotated[
        SpeculativeDecoding,
        Field(
            description="Guesses tokens ahead, which the model checks several at a time: the same"
            " answers, often faster."
        ),
    ] = SpeculativeDecoding.model_construct()
    extra_args: Annotated[
        Args,
        Purpose(PROCESS),
        Field(
            description="More arguments of the engine, one word each. Those that a runtime takes"
            " are printed by `reconcile schema --arguments`. An entry of models adds its own behind"
            " the service's."
        ),
    ] = ()


class ModelEntry(ModelSettings):
    name: Annotated[
        Name,
        Purpose(WORKLOAD),
        Field(description="Name of a Model in the same namespace; clients ask for it by this."),
    ]
    preload: Annotated[
        bool,
        Purpose(PROCESS, affects_speed=False),
        Field(description="Load it when the router starts. Where no entry says so, the first is."),
    ] = False
