"""What the name of a model file says of its weights. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# GGUF's Q4_K_M, IQ4_XS and MXFP4; AWQ and GPTQ, which are of 4 bits where they say no more
_FOUR = re.compile(
    r"(?<![a-z0-9])"
    r"(i?q4(_[a-z0-9]+)*|[a-z]*int4|w4a(4|8|16)|awq|gptq|4-?bits?|(mx|nv)fp4|nf4)"
    r"(?![a-z0-9])"
)
_EIGHT = re.compile(r"(?<![a-z0-9])(int8|8-?bits?|w8a(8|16)|q8_0)(?![a-z0-9])")


def is_of_4_bits(model: Mapping[str, Any]) -> bool:
    """Whether one of `Workload.inputs["models"]` says so. Unknown counts as no."""
    files = model.get("files")
    sources = [model.get("source"), *(files if isinstance(files, list) else ())]
    names = [word.partition("?")[0].lower() for word in sources if isinstance(word, str)]
    return any(_FOUR.search(name) and not _EIGHT.search(name) for name in names)
