"""Which arguments and variables a manifest may hand to llama.cpp. Pure.

An allow-list: sampling, prompt handling, rope scaling. What a field of the spec decides is refused
with the name of the field, what opens the machine with the reason, the rest as unknown to us.
Flags and arities: `llama-server --help` of llama.cpp b11434.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.memory import CACHE_TYPES
from reconciler.runtimes import arguments
from reconciler.runtimes.arguments import JSON_OBJECT, TEXT, Allowed
from reconciler.runtimes.llamacpp_restated import TABLE

_CACHE_TYPE = "|".join(CACHE_TYPES)
_AT_ONCE = r"[1-9][0-9]{0,2}"  # tokens: each takes a row of logits

_ROWS = (
    Allowed(("--temp", "--temperature")),
    Allowed(("--top-k",)),
    Allowed(("--top-p",)),
    Allowed(("--min-p",)),
    Allowed(("--top-n-sigma", "--top-nsigma")),
    Allowed(("--typical-p", "--typical")),
    Allowed(("--xtc-probability",)),
    Allowed(("--xtc-threshold",)),
    Allowed(("--seed", "-s")),
    Allowed(("--repeat-last-n",)),
    Allowed(("--repeat-penalty",)),
    Allowed(("--presence-penalty",)),
    Allowed(("--frequency-penalty",)),
    Allowed(("--dry-multiplier",)),
    Allowed(("--dry-base",)),
    Allowed(("--dry-allowed-length",)),
    Allowed(("--dry-penalty-last-n",)),
    Allowed(("--dry-sequence-breaker",), TEXT),
    Allowed(("--adaptive-target",)),
    Allowed(("--adaptive-decay",)),
    Allowed(("--dynatemp-range",)),
    Allowed(("--dynatemp-exp",)),
    Allowed(("--mirostat",), r"[012]"),
    Allowed(("--mirostat-lr",)),
    Allowed(("--mirostat-ent",)),
    Allowed(("--samplers",), r"[a-z_;]{1,256}"),
    Allowed(("--sampler-seq", "--sampling-seq"), r"[a-z]{1,32}"),
    Allowed(("--logit-bias", "-l"), r"[0-9]{1,7}[-+][0-9]{1,4}(\.[0-9]{1,6})?"),
    Allowed(("--no-escape",), None),
    Allowed(("--spm-infill",), None),
    Allowed(("--predict", "--n-predict", "-n")),
    Allowed(("--keep",)),
    Allowed(("--ignore-eos",), None),
    Allowed(("--special", "-sp"), None),
    Allowed(("--rope-scaling",), r"none|linear|yarn"),
    Allowed(("--rope-scale",)),
    Allowed(("--rope-freq-base",)),
    Allowed(("--rope-freq-scale",)),
    Allowed(("--yarn-orig-ctx",)),
    Allowed(("--yarn-ext-factor",)),
    Allowed(("--yarn-attn-factor",)),
    Allowed(("--yarn-beta-slow",)),
    Allowed(("--yarn-beta-fast",)),
    Allowed(("--chat-template",), r"[a-z][a-z0-9_.-]{0,63}"),  # built-in ones, by name
    Allowed(("--chat-template-kwargs",), JSON_OBJECT),
    Allowed(("--reasoning-format",), r"auto|none|deepseek|deepseek-legacy"),
    Allowed(("--reasoning", "-rea"), r"on|off|auto"),
    Allowed(("--reasoning-budget",)),
    Allowed(("--reasoning-budget-message",), TEXT),
    Allowed(("--reasoning-effort",), r"[a-z]{1,16}"),
    Allowed(("--reasoning-preserve",), None),
    Allowed(("--no-reasoning-preserve",), None),
    Allowed(("--image-min-tokens",)),
    Allowed(("--image-max-tokens",)),
    Allowed(("--video-fps",)),
    Allowed(("--video-timestamp-interval",)),
    Allowed(("--tags",), TEXT),
    # What speculativeDecoding leaves open.
    Allowed(("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft"), _CACHE_TYPE),
    Allowed(("--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"), _CACHE_TYPE),
    Allowed(("--spec-draft-n-min",)),
    Allowed(("--spec-draft-p-split", "--draft-p-split")),
    Allowed(("--spec-draft-backend-sampling",), None),
    Allowed(("--no-spec-draft-backend-sampling",), None),
    Allowed(("--spec-draft-sampling",), r"greedy|probabilistic"),
    Allowed(("--spec-ngram-mod-n-min",)),
    Allowed(("--spec-ngram-mod-n-max",), _AT_ONCE),
    Allowed(("--spec-ngram-mod-n-match",)),
    *(
        Allowed((f"--spec-{way}-{part}",), _AT_ONCE)
        for way in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        for part in ("size-n", "size-m", "min-hits")
    ),
    Allowed(("--skip-chat-parsing",), None),
    Allowed(("--no-prefill-assistant",), None),
    Allowed(("--context-shift",), None),
    Allowed(("--no-cache-prompt",), None),
    Allowed(("--cache-reuse",)),
    Allowed(("--no-cache-idle-slots",), None),
    Allowed(("--no-cont-batching", "-nocb"), None),
    Allowed(("--slot-prompt-similarity", "-sps")),
    Allowed(("--embd-normalize",)),
    Allowed(("--numa",), r"distribute|isolate"),
    Allowed(("--poll",), r"[0-9]{1,3}"),
    Allowed(("--no-perf",), None),
    Allowed(("--threads-http",), r"[0-9]{1,3}"),
    Allowed(("--sse-ping-interval",)),
    Allowed(("--check-tensors",), None),
)
ALLOWED = arguments.by_name(_ROWS)


def _each(flags: str, text: str) -> dict[str, str]:
    return dict.fromkeys(flags.split(), text)


_FIELD_OF: Mapping[str, str] = {
    **_each("-m --model", "modelRef"),
    **_each("-mm --mmproj --no-mmproj-auto --no-mmproj", "spec.mmproj on the Model"),
    **_each("--mmproj-offload --no-mmproj-offload -mmdev --mmproj-device", "gpuLayers"),
    **_each("-md --model-draft --spec-draft-model", "speculativeDecoding.draftModelRef"),
    **_each("--chat-template-file", "chatTemplate, a file of the repository,"),
    **_each("--cors-origins", "runtimeOptions.corsOrigins"),
    **_each("--models-max", "router.resident"),
    **_each("--draft --draft-n --draft-max", "speculativeDecoding.nDraftMax"),
    **_each("--spec-default", "speculativeDecoding.type"),
    **_each("--models-dir --models-preset", "models"),
}
_OURS: Mapping[str, str] = {
    **_each(
        "-dev --device",
        "devices says how many; which ones says env, with the name CUDA_VISIBLE_DEVICES (of AMD"
        " HIP_VISIBLE_DEVICES) and their numbers as its value",
    ),
    **_each(
        "-no-kvu --no-kv-unified --kv-unified-per-slot",
        "the slots always share one context; set contextSize and parallelSlots",
    ),
    **_each(
        "-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step",
        "it is always 0, as no estimate counts what checkpoints take; no field changes that",
    ),
    **_each(
        "-fit --fit -fitt --fit-target -fitc --fit-ctx",
        "what the plan admitted is what must run; set contextSize, or memory.mode: warn",
    ),
    **_each(
        "--op-offload --no-op-offload",
        "no estimate counts what it moves; gpuLayers leaves whole layers to the processor,"
        " moeCPULayers the experts of layers, and noKvOffload the cache",
    ),
    **_each(
        "-ncffn --n-cpu-ffn -lzm --lazy-mode --no-host -bs --backend-sampling"
        " --mtmd-batch-max-tokens",
        "no estimate counts what it moves or takes; there is no field for it",
    ),
    **_each(
        "--override-kv",
        "memory is worked out by the file's header as it is; there is no field for it",
    ),
    **_each(
        "--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-device -devd"
        " --device-draft --spec-draft-override-tensor -otd --override-tensor-draft"
        " --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe"
        " -ncmoed --n-cpu-moe-draft",
        "what guesses is where the model is, and counted there; gpuLayers: 0 puts both on the"
        " machine",
    ),
    **_each(
        "--spec-synth-len --spec-synth-rates",
        "it makes up how many guesses are right, for benchmarks of llama.cpp",
    ),
    **_each(
        "--draft-min --draft-n-min --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits",
        "llama.cpp has removed it; `llama-server --help` names what it has instead",
    ),
    **_each(
        "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio -Cb --cpu-mask-batch -Crb"
        " --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch --spec-draft-threads -td"
        " --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft"
        " --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft"
        " --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft"
        " --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft"
        " --spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch"
        " --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft",
        "the node decides the threads, so that services do not slow each other down; there is no"
        " field for it",
    ),
    **_each(
        "--cors-methods --cors-headers --cors-credentials --no-cors-credentials",
        "runtimeOptions.corsOrigins says which pages may use it, and all that they may then do",
    ),
    **_each(
        "-r --reverse-prompt", "a server does nothing with it; clients send stop with a request"
    ),
    **_each(
        "-h --help --usage --version -cl --cache-list --completion-bash --list-devices",
        "it prints something and ends; there is nothing to serve then",
    ),
    **_each(
        "--grammar --json-schema -j",
        "it would bind every client; who wants it sends grammar or json_schema with a request",
    ),
    **_each(
        "--ui --webui --ui-config --webui-config",
        "a service answers its API and serves no page; any chat page that speaks the OpenAI API can"
        " use its URL",
    ),
    **_each(
        "--no-slots --log-disable --log-jsonl --no-models-autoload",
        "the agent owns it, because it watches the process through it",
    ),
}
_FILES = "it reads or writes files of the node that the fleet does not own"
_DANGEROUS: Mapping[str, str] = {
    **_each(
        "--tools --tools-runtime -ag --agent --mcp-servers-config --mcp-servers-json"
        " --ui-mcp-proxy --webui-mcp-proxy",
        "it lets anyone who reaches the port run programs and read files on the node",
    ),
    **_each(
        "--slot-save-path --media-path --path --log-file --log-prompts-dir --control-vector"
        " --control-vector-layer-range --control-vector-scaled --ui-config-file --webui-config-file"
        " -lcs --lookup-cache-static"
        " -lcd --lookup-cache-dynamic --video-ffmpeg-dir --ssl-key-file --ssl-cert-file"
        " --api-key-file",
        _FILES,
    ),
    **_each(
        "--lora --lora-scaled --lora-init-without-apply",
        f"{_FILES}; merge the adapter into the weights, and declare these as a Model",
    ),
    **_each(
        "--grammar-file --json-schema-file -jf",
        f"{_FILES}; clients send grammar or json_schema with a request",
    ),
    **_each(
        "-hf -hfr --hf-repo -hff --hf-file -mu --model-url -dr --docker-repo -mmu --mmproj-url"
        " -hfd -hfrd --hf-repo-draft --spec-draft-hf --embd-gemma-default --fim-qwen-1.5b-default"
        " --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec"
        " --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default"
        " --vision-gemma-4b-default --vision-gemma-12b-default",
        "it downloads outside the model store, unverified; declare a Model instead",
    ),
    **_each(
        "--api-key -hft --hf-token",
        "a secret on the command line can be read by every user of the node",
    ),
    **_each("--rpc", "the protocol has no authentication and writes to memory"),
    **_each("--reuse-port", "two processes would share one port, and neither would know"),
    **_each("--props", "it lets anyone who reaches the port change the running settings"),
    **_each("--api-prefix", "readiness and clients look for the usual paths"),
}


def check_args(args: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Why arguments are refused: (index, reason) pairs; empty when all are fine."""
    return arguments.refused(args, ALLOWED, _refusal)


def flags_of(args: tuple[str, ...]) -> tuple[tuple[str, str | bool], ...]:
    """Checked arguments as (flag, value) pairs under their long names; True for a bare flag."""
    return arguments.flags_of(args, ALLOWED)


def _refusal(flag: str) -> str:
    if row := TABLE.get(flag):  # its value could not be read
        return f"{flag} has another value: {f'set {row.field} instead' if row.field else row.why}"
    if flag in _FIELD_OF:
        return f"{flag} is decided by a field: set {_FIELD_OF[flag]} instead"
    if flag in _OURS:
        return f"{flag} cannot be set: {_OURS[flag]}"
    if flag in _DANGEROUS:
        return f"{flag} is never allowed: {_DANGEROUS[flag]}"
    return arguments.unlisted(flag)


VARIABLES = re.compile(
    r"GGML_(CUDA|HIP|VK|SYCL|METAL|CPU|OPENCL|CANN|SCHED)_[A-Z0-9_]+"
    r"|OMP_(PROC_BIND|PLACES|DYNAMIC)|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER)"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES)"
    r"|(HIP|ROCR)_VISIBLE_DEVICES|HSA_OVERRIDE_GFX_VERSION|ONEAPI_DEVICE_SELECTOR"
    r"|ZES_ENABLE_SYSMAN|TZ|LANG|LC_ALL"
)
_ENV_REFUSED = (
    (r"LLAMA_ARG_.*", "it sets a flag; set the field of the spec instead"),
    (
        r"LLAMA_API_KEY|HF_TOKEN|.*(TOKEN|SECRET|PASSWORD|KEY)",
        "secrets do not belong in a manifest",
    ),
    (r"OMP_.*", "the node decides the threads, so that services do not slow each other down"),
    (r".*(PATH|DIR|FILE|HOME|LIB|LIBRARY|PRELOAD|LIBRARIES).*", "it points at files of the node"),
)


def check_env(name: str) -> str | None:
    """Why a variable is refused; None when it is fine."""
    for pattern, reason in _ENV_REFUSED:
        if re.fullmatch(pattern, name, re.IGNORECASE) and not (
            name.startswith("OMP_") and VARIABLES.fullmatch(name)
        ):
            return f"{name} cannot be set: {reason}"
    if VARIABLES.fullmatch(name):
        return None
    return arguments.unlisted_variable(name)
