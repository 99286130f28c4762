"""llama-server's flags, as settings of the xllamacpp wheel: one row a flag.

What a flag does to the settings is what llama.cpp's own parser does (common/arg.cpp of b11434).
Rows that the parser has and the wheel cannot express are left out, so they are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import xllamacpp

from reconciler.api.plain_json import parse_json

Apply = Callable[[xllamacpp.CommonParams, str], None]


class FlagError(Exception):
    """A flag that cannot be honoured; the text names it."""


@dataclass(frozen=True, slots=True)
class _FlagRow:
    names: tuple[str, ...]
    apply: Apply
    takes_value: bool = True


def params_from(argv: Sequence[str]) -> xllamacpp.CommonParams:
    """Parse a command line. Raises FlagError for a flag or a value that cannot be honoured."""
    params = xllamacpp.CommonParams()
    arguments = iter(argv)
    for word in arguments:
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        row = _FLAGS.get(flag)
        if row is None:
            raise FlagError(f"{flag}: the embedded engine has no such flag; use a llama-server")
        if equals and not row.takes_value:
            raise FlagError(f"{flag} takes no value")
        if row.takes_value and not equals:
            value = next(arguments, "")
            if not value:
                raise FlagError(f"{flag} needs a value")
        _apply(row, params, flag, value)
    if not params.model.path:
        raise FlagError("--model is missing")
    if params.embedding:  # all tokens of an input go through one micro-batch
        params.n_batch = params.n_ubatch
    return params


def _apply(row: _FlagRow, params: xllamacpp.CommonParams, flag: str, value: str) -> None:
    try:
        row.apply(params, value)
    except OSError as error:
        raise FlagError(f"{flag} {value}: no such value ({error.strerror})") from error
    except (ValueError, KeyError, OverflowError) as error:
        raise FlagError(f"{flag} {value}: no such value ({error})") from error
    except AttributeError as error:
        raise FlagError(
            f"{flag}: xllamacpp {xllamacpp.__version__} cannot do it ({error}); install a newer one"
        ) from error


def _set(path: str, convert: Callable[[str], object], bit: str | None = None) -> Apply:
    """Set an attribute; `bit` marks a sampling setting as stated, so that no model overrides it."""
    *parts, last = path.split(".")

    def apply(params: xllamacpp.CommonParams, text: str) -> None:
        target = params
        for part in parts:
            target = getattr(target, part)
        setattr(target, last, convert(text))
        if bit is not None:
            stated = getattr(
                xllamacpp.common_params_sampling_config, f"COMMON_PARAMS_SAMPLING_CONFIG_{bit}"
            )
            params.sampling.user_sampling_config |= int(stated)

    return apply


def _all(*applies: Apply) -> Apply:
    def apply(params: xllamacpp.CommonParams, text: str) -> None:
        for each in applies:
            each(params, text)

    return apply


def _fixed(value: object) -> Callable[[str], object]:
    return lambda _: value


def _choice(values: Mapping[str, object]) -> Callable[[str], object]:
    return lambda text: values[text]


def _member(enum: str, prefix: str) -> Callable[[str], object]:
    """`q8_0` -> ggml_type.GGML_TYPE_Q8_0."""

    def convert(text: str) -> object:
        members: Mapping[str, object] = getattr(xllamacpp, enum).__members__
        return members[f"{prefix}{text.upper().replace('-', '_')}"]

    return convert


def _switch(on: str, off: str, path: str, *, inverted: bool = False) -> tuple[_FlagRow, _FlagRow]:
    return (
        _FlagRow(tuple(on.split()), _set(path, _fixed(not inverted)), takes_value=False),
        _FlagRow(tuple(off.split()), _set(path, _fixed(inverted)), takes_value=False),
    )


def _value(
    names: str, path: str, convert: Callable[[str], object], bit: str | None = None
) -> _FlagRow:
    return _FlagRow(tuple(names.split()), _set(path, convert, bit))


def _bare(names: str, apply: Apply) -> _FlagRow:
    return _FlagRow(tuple(names.split()), apply, takes_value=False)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _layers(text: str) -> int:
    return {"auto": -1, "all": -2}.get(text) or int(text)


def _reasoning(params: xllamacpp.CommonParams, text: str) -> None:
    params.enable_reasoning = {"auto": -1, "off": 0, "on": 1}[text]
    if text != "auto":
        stated = "true" if text == "on" else "false"
        params.default_template_kwargs = {
            **params.default_template_kwargs,
            "enable_thinking": stated,
        }


def _template_kwargs(params: xllamacpp.CommonParams, text: str) -> None:
    stated = {key: json.dumps(value) for key, value in parse_json(text).items()}
    params.default_template_kwargs = {**params.default_template_kwargs, **stated}


def _repeat_last_n(params: xllamacpp.CommonParams, text: str) -> None:
    params.sampling.n_prev = max(params.sampling.n_prev, int(text))


_LOAD_MODES = {
    "auto": "AUTO",
    "none": "NONE",
    "mmap": "MMAP",
    "mlock": "MLOCK",
    "mmap+mlock": "MMAP_MLOCK",
    "dio": "DIRECT_IO",
}


def _load_mode(text: str) -> object:
    return _member("llama_load_mode", "LLAMA_LOAD_MODE_")(_LOAD_MODES[text])


_FLASH = {"auto": "AUTO", "off": "DISABLED", "on": "ENABLED"}


def _flash_attention(text: str) -> object:
    return _member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_")(_FLASH[text])


_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"


def _experts_of(text: str) -> str:
    return ",".join(rf"blk\.{layer}{_EXPERTS}" for layer in range(int(text)))


def _tensor_split(params: xllamacpp.CommonParams, text: str) -> None:
    shares = [float(share) for share in text.split(",")]
    params.tensor_split = [*shares, *params.tensor_split[len(shares) :]]


def _ways(text: str) -> list[object]:
    return [_member("common_speculative_type", "COMMON_SPECULATIVE_TYPE_")(w) for w in _list(text)]


_pooling = _member("llama_pooling_type", "LLAMA_POOLING_TYPE_")
_cache_type = _member("ggml_type", "GGML_TYPE_")

_SERVER = (
    _value("--model -m", "model.path", str),
    _value("--mmproj -mm", "mmproj.path", str),
    *_switch("--mmproj-offload", "--no-mmproj-offload", "mmproj_use_gpu"),
    _value("--alias -a", "model_alias", lambda text: set(_list(text))),
    _value("--host", "hostnames", _list),
    _value("--port", "port", int),
    _bare("--offline", _set("offline", _fixed(True))),
    *_switch("--webui --ui", "--no-webui --no-ui", "ui"),
    _FlagRow(("--timeout", "-to"), _all(_set("timeout_read", int), _set("timeout_write", int))),
    _value("--verbosity -lv --log-verbosity", "verbosity", int),
    _FlagRow(
        ("--cors-origins",),
        _all(_set("cors_origins", str), _set("cors_origins_explicit", _fixed(True))),
    ),
    _bare("--metrics", _set("endpoint_metrics", _fixed(True))),
    *_switch("--slots", "--no-slots", "endpoint_slots"),
    _value("--threads-http", "n_threads_http", int),
    _value("--sse-ping-interval", "sse_ping_interval", int),
    _value("--sleep-idle-seconds", "sleep_idle_seconds", int),
)
_MODEL = (
    _value("--ctx-size -c", "n_ctx", int),
    _value("--parallel -np", "n_parallel", int),
    *_switch("--kv-unified -kvu", "--no-kv-unified -no-kvu", "kv_unified"),
    _value("--cache-type-k -ctk", "cache_type_k", _cache_type),
    _value("--cache-type-v -ctv", "cache_type_v", _cache_type),
    _value("--flash-attn -fa", "flash_attn_type", _flash_attention),
    _value("--gpu-layers -ngl --n-gpu-layers", "n_gpu_layers", _layers),
    _bare("--cpu-moe -cmoe", _set("tensor_buft_overrides", _fixed(_EXPERTS))),
    _value("--n-cpu-moe -ncmoe", "tensor_buft_overrides", _experts_of),
    *_switch("--kv-offload -kvo", "--no-kv-offload -nkvo", "no_kv_offload", inverted=True),
    _value("--split-mode -sm", "split_mode", _member("llama_split_mode", "LLAMA_SPLIT_MODE_")),
    _FlagRow(("--tensor-split", "-ts"), _tensor_split),
    _value("--main-gpu -mg", "main_gpu", int),
    _value("--batch-size -b", "n_batch", int),
    _value("--ubatch-size -ub", "n_ubatch", int),
    _value("--threads -t", "cpuparams.n_threads", int),
    _value("--threads-batch -tb", "cpuparams_batch.n_threads", int),
    _value("--poll", "cpuparams.poll", int),
    _value("--numa", "numa", _member("ggml_numa_strategy", "GGML_NUMA_STRATEGY_")),
    _value("--cache-ram -cram", "cache_ram_mib", int),
    _value("--ctx-checkpoints -ctxcp", "n_ctx_checkpoints", int),
    _value("--load-mode -lm", "load_mode", _load_mode),
    _value("--fit -fit", "fit_params", _choice({"on": True, "off": False})),
    *_switch("--warmup", "--no-warmup", "warmup"),
    *_switch("--repack", "--no-repack -nr", "no_extra_bufts", inverted=True),
    _bare("--swa-full", _set("swa_full", _fixed(True))),
    _bare("--check-tensors", _set("check_tensors", _fixed(True))),
    _bare("--embeddings --embedding", _set("embedding", _fixed(True))),
    _bare(
        "--reranking --rerank",
        _all(_set("embedding", _fixed(True)), _set("pooling_type", lambda _: _pooling("rank"))),
    ),
    _value("--pooling", "pooling_type", _pooling),
    _value("--embd-normalize", "embd_normalize", int),
    _value(
        "--rope-scaling",
        "rope_scaling_type",
        _member("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    ),
    _value("--rope-freq-base", "rope_freq_base", float),
    _value("--rope-freq-scale", "rope_freq_scale", float),
    _value("--rope-scale", "rope_freq_scale", lambda text: 1 / float(text)),
    _value("--yarn-orig-ctx", "yarn_orig_ctx", int),
    _value("--yarn-ext-factor", "yarn_ext_factor", float),
    _value("--yarn-attn-factor", "yarn_attn_factor", float),
    _value("--yarn-beta-slow", "yarn_beta_slow", float),
    _value("--yarn-beta-fast", "yarn_beta_fast", float),
)
_N_GRAMS = ("ngram_simple", "ngram_map_k", "ngram_map_k4v")
_GUESSING = (
    _value("--spec-type", "speculative.types", _ways),
    _value("--spec-draft-model -md --model-draft", "speculative.draft.mparams.path", str),
    _value("--spec-draft-n-max", "speculative.draft.n_max", int),
    _value("--spec-draft-n-min", "speculative.draft.n_min", int),
    _value("--spec-draft-p-min --draft-p-min", "speculative.draft.p_min", float),
    _value("--spec-draft-p-split --draft-p-split", "speculative.draft.p_split", float),
    _value("--spec-draft-ngl", "speculative.draft.n_gpu_layers", _layers),
    _value(
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "speculative.draft.cache_type_k",
        _cache_type,
    ),
    _value(
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "speculative.draft.cache_type_v",
        _cache_type,
    ),
    *_switch(
        "--spec-draft-backend-sampling",
        "--no-spec-draft-backend-sampling",
        "speculative.draft.backend_sampling",
    ),
    _value(
        "--spec-draft-sampling",
        "speculative.draft.probabilistic",
        _choice({"greedy": False, "probabilistic": True}),
    ),
    *(
        _value(f"--spec-ngram-mod-{flag}", f"speculative.ngram_mod.{name}", int)
        for flag, name in (("n-min", "n_min"), ("n-max", "n_max"), ("n-match", "n_match"))
    ),
    *(
        _value(f"--spec-{kind.replace('_', '-')}-{flag}", f"speculative.{kind}.{name}", int)
        for kind in _N_GRAMS
        for flag, name in (("size-n", "size_n"), ("size-m", "size_m"), ("min-hits", "min_hits"))
    ),
)
_PROMPT = (
    *_switch("--jinja", "--no-jinja", "use_jinja"),
    _value("--chat-template", "chat_template", str),
    _value("--chat-template-file", "chat_template", lambda path: Path(path).read_text()),
    _FlagRow(("--chat-template-kwargs",), _template_kwargs),
    _value(
        "--reasoning-format",
        "reasoning_format",
        _member("common_reasoning_format", "COMMON_REASONING_FORMAT_"),
    ),
    _FlagRow(("--reasoning", "-rea"), _reasoning),
    _value("--reasoning-budget", "sampling.reasoning_budget_tokens", int),
    _value("--reasoning-budget-message", "sampling.reasoning_budget_message", str),
    _value("--image-min-tokens", "image_min_tokens", int),
    _value("--image-max-tokens", "image_max_tokens", int),
    _bare("--no-perf", _set("no_perf", _fixed(True))),
    _value("--adaptive-target", "sampling.adaptive_target", float),
    _value("--adaptive-decay", "sampling.adaptive_decay", float),
    _bare("--skip-chat-parsing", _set("force_pure_content_parser", _fixed(True))),
    _bare("--no-prefill-assistant", _set("prefill_assistant", _fixed(False))),
    _bare("--context-shift", _set("ctx_shift", _fixed(True))),
    _bare("--no-cache-idle-slots", _set("cache_idle_slots", _fixed(False))),
    _bare("--no-escape", _set("escape", _fixed(False))),
    _value("--video-fps", "video_fps", float),
    _value("--video-timestamp-interval", "video_timestamp_interval_ms", int),
    _bare("--no-cache-prompt", _set("cache_prompt", _fixed(False))),
    _bare("--no-cont-batching -nocb", _set("cont_batching", _fixed(False))),
    _value("--cache-reuse", "n_cache_reuse", int),
    _value("--slot-prompt-similarity -sps", "slot_prompt_similarity", float),
    _value("--predict -n --n-predict", "n_predict", int),
    _value("--keep", "n_keep", int),
    _bare("--special -sp", _set("special", _fixed(True))),
)
_SAMPLING = (
    _value("--temp --temperature", "sampling.temp", lambda t: max(float(t), 0.0), "TEMP"),
    _value("--top-k", "sampling.top_k", int, "TOP_K"),
    _value("--top-p", "sampling.top_p", float, "TOP_P"),
    _value("--min-p", "sampling.min_p", float, "MIN_P"),
    _value("--typical-p --typical", "sampling.typ_p", float),
    _value("--xtc-probability", "sampling.xtc_probability", float, "XTC_PROBABILITY"),
    _value("--xtc-threshold", "sampling.xtc_threshold", float, "XTC_THRESHOLD"),
    _value("--seed -s", "sampling.seed", lambda text: int(text) % 2**32),
    _FlagRow(
        ("--repeat-last-n",),
        _all(_set("sampling.penalty_last_n", int, "PENALTY_LAST_N"), _repeat_last_n),
    ),
    _value("--repeat-penalty", "sampling.penalty_repeat", float, "PENALTY_REPEAT"),
    _value("--presence-penalty", "sampling.penalty_present", float),
    _value("--frequency-penalty", "sampling.penalty_freq", float),
    _value("--dry-multiplier", "sampling.dry_multiplier", float),
    _value("--dry-base", "sampling.dry_base", float),
    _value("--dry-allowed-length", "sampling.dry_allowed_length", int),
    _value("--dry-penalty-last-n", "sampling.dry_penalty_last_n", int),
    _value("--dynatemp-range", "sampling.dynatemp_range", float),
    _value("--dynatemp-exp", "sampling.dynatemp_exponent", float),
    _value("--mirostat", "sampling.mirostat", int, "MIROSTAT"),
    _value("--mirostat-lr", "sampling.mirostat_eta", float, "MIROSTAT_ETA"),
    _value("--mirostat-ent", "sampling.mirostat_tau", float, "MIROSTAT_TAU"),
    _value("--samplers", "sampling.samplers", str, "SAMPLERS"),
    _bare("--ignore-eos", _set("sampling.ignore_eos", _fixed(True))),
)
_FLAGS: Mapping[str, _FlagRow] = MappingProxyType(
    {
        name: row
        for row in (*_SERVER, *_MODEL, *_GUESSING, *_PROMPT, *_SAMPLING)
        for name in row.names
    }
)
