"""llama-server's flags, as settings of the xllamacpp wheel: one row a flag.

Rows that llama.cpp's parser has and the wheel cannot express are left out, so they are refused by
name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import xllamacpp

from agent.engines.embedded_settings import (
    EXPERTS,
    FlagRow,
    all_of,
    assign,
    bare,
    cache_type,
    choice,
    experts_of,
    fixed,
    flash_attention,
    layers,
    listed,
    load_mode,
    member,
    override_tensors,
    pooling,
    reasoning,
    repeat_last_n,
    switch,
    template_kwargs,
    tensor_split,
    value,
    ways,
)


class FlagError(Exception):
    """A flag that cannot be honoured; the text names it."""


def params_from(argv: Sequence[str]) -> xllamacpp.CommonParams:
    """Parse a command line. Raises FlagError for a flag or a value that cannot be honoured."""
    params = xllamacpp.CommonParams()
    arguments = iter(argv)
    for word in arguments:
        flag, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        row = _FLAGS.get(flag)
        if row is None:
            raise FlagError(f"{flag}: the embedded engine has no such flag; use a llama-server")
        if equals and not row.takes_value:
            raise FlagError(f"{flag} takes no value")
        if row.takes_value and not equals:
            text = next(arguments, "")
            if not text:
                raise FlagError(f"{flag} needs a value")
        _apply(row, params, flag, text)
    if not params.model.path:
        raise FlagError("--model is missing")
    if params.embedding:  # all tokens of an input go through one micro-batch
        params.n_batch = params.n_ubatch
    return params


def _apply(row: FlagRow, params: xllamacpp.CommonParams, flag: str, text: str) -> None:
    try:
        row.apply(params, text)
    except OSError as error:
        raise FlagError(f"{flag} {text}: no such value ({error.strerror})") from error
    except (ValueError, KeyError, OverflowError) as error:
        raise FlagError(f"{flag} {text}: no such value ({error})") from error
    except AttributeError as error:
        raise FlagError(
            f"{flag}: xllamacpp {xllamacpp.__version__} cannot do it ({error}); install a newer one"
        ) from error


_SERVER = (
    value("--model -m", "model.path", str),
    value("--mmproj -mm", "mmproj.path", str),
    *switch("--mmproj-offload", "--no-mmproj-offload", "mmproj_use_gpu"),
    value("--alias -a", "model_alias", lambda text: set(listed(text))),
    value("--host", "hostnames", listed),
    value("--port", "port", int),
    bare("--offline", assign("offline", fixed(True))),
    *switch("--webui --ui", "--no-webui --no-ui", "ui"),
    FlagRow(
        ("--timeout", "-to"), all_of(assign("timeout_read", int), assign("timeout_write", int))
    ),
    value("--verbosity -lv --log-verbosity", "verbosity", int),
    FlagRow(
        ("--cors-origins",),
        all_of(assign("cors_origins", str), assign("cors_origins_explicit", fixed(True))),
    ),
    bare("--metrics", assign("endpoint_metrics", fixed(True))),
    *switch("--slots", "--no-slots", "endpoint_slots"),
    value("--threads-http", "n_threads_http", int),
    value("--sse-ping-interval", "sse_ping_interval", int),
    value("--sleep-idle-seconds", "sleep_idle_seconds", int),
)
_MODEL = (
    value("--ctx-size -c", "n_ctx", int),
    value("--parallel -np", "n_parallel", int),
    *switch("--kv-unified -kvu", "--no-kv-unified -no-kvu", "kv_unified"),
    value("--cache-type-k -ctk", "cache_type_k", cache_type),
    value("--cache-type-v -ctv", "cache_type_v", cache_type),
    value("--flash-attn -fa", "flash_attn_type", flash_attention),
    value("--gpu-layers -ngl --n-gpu-layers", "n_gpu_layers", layers),
    bare("--cpu-moe -cmoe", assign("tensor_buft_overrides", fixed(EXPERTS))),
    value("--n-cpu-moe -ncmoe", "tensor_buft_overrides", experts_of),
    FlagRow(("--override-tensor", "-ot"), override_tensors),
    *switch("--kv-offload -kvo", "--no-kv-offload -nkvo", "no_kv_offload", inverted=True),
    value("--split-mode -sm", "split_mode", member("llama_split_mode", "LLAMA_SPLIT_MODE_")),
    FlagRow(("--tensor-split", "-ts"), tensor_split),
    value("--main-gpu -mg", "main_gpu", int),
    value("--batch-size -b", "n_batch", int),
    value("--ubatch-size -ub", "n_ubatch", int),
    value("--threads -t", "cpuparams.n_threads", int),
    value("--threads-batch -tb", "cpuparams_batch.n_threads", int),
    value("--poll", "cpuparams.poll", int),
    value("--numa", "numa", member("ggml_numa_strategy", "GGML_NUMA_STRATEGY_")),
    value("--cache-ram -cram", "cache_ram_mib", int),
    value("--ctx-checkpoints -ctxcp", "n_ctx_checkpoints", int),
    value("--load-mode -lm", "load_mode", load_mode),
    value("--fit -fit", "fit_params", choice({"on": True, "off": False})),
    *switch("--warmup", "--no-warmup", "warmup"),
    *switch("--repack", "--no-repack -nr", "no_extra_bufts", inverted=True),
    bare("--swa-full", assign("swa_full", fixed(True))),
    bare("--check-tensors", assign("check_tensors", fixed(True))),
    bare("--embeddings --embedding", assign("embedding", fixed(True))),
    bare(
        "--reranking --rerank",
        all_of(assign("embedding", fixed(True)), assign("pooling_type", lambda _: pooling("rank"))),
    ),
    value("--pooling", "pooling_type", pooling),
    value("--embd-normalize", "embd_normalize", int),
    value(
        "--rope-scaling",
        "rope_scaling_type",
        member("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    ),
    value("--rope-freq-base", "rope_freq_base", float),
    value("--rope-freq-scale", "rope_freq_scale", float),
    value("--rope-scale", "rope_freq_scale", lambda text: 1 / float(text)),
    value("--yarn-orig-ctx", "yarn_orig_ctx", int),
    value("--yarn-ext-factor", "yarn_ext_factor", float),
    value("--yarn-attn-factor", "yarn_attn_factor", float),
    value("--yarn-beta-slow", "yarn_beta_slow", float),
    value("--yarn-beta-fast", "yarn_beta_fast", float),
)
_N_GRAMS = ("ngram_simple", "ngram_map_k", "ngram_map_k4v")
_GUESSING = (
    value("--spec-type", "speculative.types", ways),
    value("--spec-draft-model -md --model-draft", "speculative.draft.mparams.path", str),
    value("--spec-draft-n-max", "speculative.draft.n_max", int),
    value("--spec-draft-n-min", "speculative.draft.n_min", int),
    value("--spec-draft-p-min --draft-p-min", "speculative.draft.p_min", float),
    value("--spec-draft-p-split --draft-p-split", "speculative.draft.p_split", float),
    value("--spec-draft-ngl", "speculative.draft.n_gpu_layers", layers),
    value(
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "speculative.draft.cache_type_k",
        cache_type,
    ),
    value(
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "speculative.draft.cache_type_v",
        cache_type,
    ),
    *switch(
        "--spec-draft-backend-sampling",
        "--no-spec-draft-backend-sampling",
        "speculative.draft.backend_sampling",
    ),
    value(
        "--spec-draft-sampling",
        "speculative.draft.probabilistic",
        choice({"greedy": False, "probabilistic": True}),
    ),
    *(
        value(f"--spec-ngram-mod-{flag}", f"speculative.ngram_mod.{name}", int)
        for flag, name in (("n-min", "n_min"), ("n-max", "n_max"), ("n-match", "n_match"))
    ),
    *(
        value(f"--spec-{kind.replace('_', '-')}-{flag}", f"speculative.{kind}.{name}", int)
        for kind in _N_GRAMS
        for flag, name in (("size-n", "size_n"), ("size-m", "size_m"), ("min-hits", "min_hits"))
    ),
)
_PROMPT = (
    *switch("--jinja", "--no-jinja", "use_jinja"),
    value("--chat-template", "chat_template", str),
    value("--chat-template-file", "chat_template", lambda path: Path(path).read_text()),
    FlagRow(("--chat-template-kwargs",), template_kwargs),
    value(
        "--reasoning-format",
        "reasoning_format",
        member("common_reasoning_format", "COMMON_REASONING_FORMAT_"),
    ),
    FlagRow(("--reasoning", "-rea"), reasoning),
    value("--reasoning-budget", "sampling.reasoning_budget_tokens", int),
    value("--reasoning-budget-message", "sampling.reasoning_budget_message", str),
    value("--image-min-tokens", "image_min_tokens", int),
    value("--image-max-tokens", "image_max_tokens", int),
    bare("--no-perf", assign("no_perf", fixed(True))),
    value("--adaptive-target", "sampling.adaptive_target", float),
    value("--adaptive-decay", "sampling.adaptive_decay", float),
    bare("--skip-chat-parsing", assign("force_pure_content_parser", fixed(True))),
    bare("--no-prefill-assistant", assign("prefill_assistant", fixed(False))),
    bare("--context-shift", assign("ctx_shift", fixed(True))),
    bare("--no-cache-idle-slots", assign("cache_idle_slots", fixed(False))),
    bare("--no-escape", assign("escape", fixed(False))),
    value("--video-fps", "video_fps", float),
    value("--video-timestamp-interval", "video_timestamp_interval_ms", int),
    bare("--no-cache-prompt", assign("cache_prompt", fixed(False))),
    bare("--no-cont-batching -nocb", assign("cont_batching", fixed(False))),
    value("--cache-reuse", "n_cache_reuse", int),
    value("--slot-prompt-similarity -sps", "slot_prompt_similarity", float),
    value("--predict -n --n-predict", "n_predict", int),
    value("--keep", "n_keep", int),
    bare("--special -sp", assign("special", fixed(True))),
)
_SAMPLING = (
    value("--temp --temperature", "sampling.temp", lambda t: max(float(t), 0.0), "TEMP"),
    value("--top-k", "sampling.top_k", int, "TOP_K"),
    value("--top-p", "sampling.top_p", float, "TOP_P"),
    value("--min-p", "sampling.min_p", float, "MIN_P"),
    value("--typical-p --typical", "sampling.typ_p", float),
    value("--xtc-probability", "sampling.xtc_probability", float, "XTC_PROBABILITY"),
    value("--xtc-threshold", "sampling.xtc_threshold", float, "XTC_THRESHOLD"),
    value("--seed -s", "sampling.seed", lambda text: int(text) % 2**32),
    FlagRow(
        ("--repeat-last-n",),
        all_of(assign("sampling.penalty_last_n", int, "PENALTY_LAST_N"), repeat_last_n),
    ),
    value("--repeat-penalty", "sampling.penalty_repeat", float, "PENALTY_REPEAT"),
    value("--presence-penalty", "sampling.penalty_present", float),
    value("--frequency-penalty", "sampling.penalty_freq", float),
    value("--dry-multiplier", "sampling.dry_multiplier", float),
    value("--dry-base", "sampling.dry_base", float),
    value("--dry-allowed-length", "sampling.dry_allowed_length", int),
    value("--dry-penalty-last-n", "sampling.dry_penalty_last_n", int),
    value("--dynatemp-range", "sampling.dynatemp_range", float),
    value("--dynatemp-exp", "sampling.dynatemp_exponent", float),
    value("--mirostat", "sampling.mirostat", int, "MIROSTAT"),
    value("--mirostat-lr", "sampling.mirostat_eta", float, "MIROSTAT_ETA"),
    value("--mirostat-ent", "sampling.mirostat_tau", float, "MIROSTAT_TAU"),
    value("--samplers", "sampling.samplers", str, "SAMPLERS"),
    bare("--ignore-eos", assign("sampling.ignore_eos", fixed(True))),
)
_FLAGS: Mapping[str, FlagRow] = MappingProxyType(
    {
        name: row
        for row in (*_SERVER, *_MODEL, *_GUESSING, *_PROMPT, *_SAMPLING)
        for name in row.names
    }
)
