"""Which settings of a service matter to how fast it is, and which make that no question. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reconciler.api.benchmark import BATCH_TOKENS
from reconciler.api.digest import digest
from reconciler.api.field import LIFECYCLE, fields_of
from reconciler.api.inferenceservice import InferenceServiceSpec
from reconciler.api.model_settings import ModelEntry

# What a process is started with, and what makes none of its tokens faster or slower.
_NO_MATTER = {
    *(
        field.path
        for part in (InferenceServiceSpec, ModelEntry)
        for field in fields_of(part)
        if field.purpose.use is LIFECYCLE or not field.purpose.affects_speed
    ),
    "runtimeOptions.corsOrigins",
}
_OF_ONE = re.compile(r"models\[([^\]]+)\]\.(.+)")


def settings_digest(settings: Mapping[str, Any], model: str) -> str:
    """Digest of the settings of a workload (`runtimes.settings.settings`) that the speed of one of
    its models may depend on. A model behind a router has it as its own server would. What is unset
    or off counts as absent: a version that knows one option more finds the same digest."""
    own = {}
    for path, value in settings.items():
        match = _OF_ONE.fullmatch(path)
        name = match[2] if match else path
        is_off = value is None or value is False or value in ("", [], ())  # and 0 is a number
        if (match is None or match[1] == model) and not is_off and name not in _NO_MATTER:
            own[name] = value
    return digest(own)


_WRITES_NOTHING = ("runtimeOptions.embeddings", "runtimeOptions.reranking")


def writes_nothing(settings: Mapping[str, Any], model: str) -> str | None:
    """Why the speed of a model with these settings of its workload cannot be measured, as said of
    its service; None: it can."""
    if any(settings.get(option) for option in _WRITES_NOTHING):
        return "writes no text, which is what is measured"
    context = settings.get(f"models[{model}].contextSize", settings.get("contextSize"))
    if isinstance(context, int) and context <= 2 * BATCH_TOKENS:
        return (
            f"has contextSize {context}, which holds no prompt of {BATCH_TOKENS} tokens and as long"
            " an answer"
        )
    return None
