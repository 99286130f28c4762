"""What a flag does to the settings of the xllamacpp wheel, as llama.cpp's own parser does it
(common/arg.cpp of b11434)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import xllamacpp

from reconciler.api.plain_json import parse_json

Apply = Callable[[xllamacpp.CommonParams, str], None]


@dataclass(frozen=True, slots=True)
class FlagRow:
    names: tuple[str, ...]
    apply: Apply
    takes_value: bool = True


def assign(path: str, convert: Callable[[str], object], bit: str | None = None) -> Apply:
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


def all_of(*applies: Apply) -> Apply:
    def apply(params: xllamacpp.CommonParams, text: str) -> None:
        for each in applies:
            each(params, text)

    return apply


def fixed(value: object) -> Callable[[str], object]:
    return lambda _: value


def choice(values: Mapping[str, object]) -> Callable[[str], object]:
    return lambda text: values[text]


def member(enum: str, prefix: str) -> Callable[[str], object]:
    """`q8_0` -> ggml_type.GGML_TYPE_Q8_0."""

    def convert(text: str) -> object:
        members: Mapping[str, object] = getattr(xllamacpp, enum).__members__
        return members[f"{prefix}{text.upper().replace('-', '_')}"]

    return convert


def switch(on: str, off: str, path: str, *, inverted: bool = False) -> tuple[FlagRow, FlagRow]:
    return (
        FlagRow(tuple(on.split()), assign(path, fixed(not inverted)), takes_value=False),
        FlagRow(tuple(off.split()), assign(path, fixed(inverted)), takes_value=False),
    )


def value(
    names: str, path: str, convert: Callable[[str], object], bit: str | None = None
) -> FlagRow:
    return FlagRow(tuple(names.split()), assign(path, convert, bit))


def bare(names: str, apply: Apply) -> FlagRow:
    return FlagRow(tuple(names.split()), apply, takes_value=False)


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def layers(text: str) -> int:
    return {"auto": -1, "all": -2}.get(text) or int(text)


def reasoning(params: xllamacpp.CommonParams, text: str) -> None:
    params.enable_reasoning = {"auto": -1, "off": 0, "on": 1}[text]
    if text != "auto":
        stated = "true" if text == "on" else "false"
        params.default_template_kwargs = {
            **params.default_template_kwargs,
            "enable_thinking": stated,
        }


def template_kwargs(params: xllamacpp.CommonParams, text: str) -> None:
    stated = {key: json.dumps(value) for key, value in parse_json(text).items()}
    params.default_template_kwargs = {**params.default_template_kwargs, **stated}


def repeat_last_n(params: xllamacpp.CommonParams, text: str) -> None:
    params.sampling.n_prev = max(params.sampling.n_prev, int(text))


_LOAD_MODES = {
    "auto": "AUTO",
    "none": "NONE",
    "mmap": "MMAP",
    "mlock": "MLOCK",
    "mmap+mlock": "MMAP_MLOCK",
    "dio": "DIRECT_IO",
}


def load_mode(text: str) -> object:
    return member("llama_load_mode", "LLAMA_LOAD_MODE_")(_LOAD_MODES[text])


_FLASH = {"auto": "AUTO", "off": "DISABLED", "on": "ENABLED"}


def flash_attention(text: str) -> object:
    return member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_")(_FLASH[text])


EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"


def experts_of(text: str) -> str:
    return ",".join(rf"blk\.{layer}{EXPERTS}" for layer in range(int(text)))


def override_tensors(params: xllamacpp.CommonParams, text: str) -> None:
    """Behind those that are there, which are asked first."""
    there = params.tensor_buft_overrides
    params.tensor_buft_overrides = f"{there},{text}" if there else text


def tensor_split(params: xllamacpp.CommonParams, text: str) -> None:
    shares = [float(share) for share in text.split(",")]
    params.tensor_split = [*shares, *params.tensor_split[len(shares) :]]


def ways(text: str) -> list[object]:
    return [member("common_speculative_type", "COMMON_SPECULATIVE_TYPE_")(w) for w in listed(text)]


pooling = member("llama_pooling_type", "LLAMA_POOLING_TYPE_")
cache_type = member("ggml_type", "GGML_TYPE_")
