"""Which of FlexInfer's backends are runtimes here, and where the model of one comes from. Pure.

Its names are those by which ours are known, but for one that is no engine of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Formats = Mapping[str, str]  # of the models of each runtime that has one format, by its names


class Backend(NamedTuple):
    """The runtime that a service states, or none: the one of its node; and its models' format."""

    runtime: str | None
    format: str


_WRAPPED = {"ollama": "gguf"}  # an engine around one of ours: what counts is what it serves
_HUB = re.compile(r"(?:hf|huggingface)://", re.IGNORECASE)
_SOURCE = re.compile(r"(?:https?|hf|s3|oci|pvc|image|file)://")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def backend_of(name: str, formats: Formats) -> Backend | None:
    """None: it is no runtime here."""
    if name in formats:
        return Backend(name, formats[name])
    return Backend(None, _WRAPPED[name]) if name in _WRAPPED else None


def source_of(backend: Backend, model: str) -> str | None:
    """The source of a Model; None: it names nothing that can be fetched from anywhere, as names of
    Ollama's registry and files of a ModelCache. What is served from a folder may be named as a
    repository of the Hugging Face Hub."""
    given = _HUB.sub("hf://", model)
    if _SOURCE.match(given):
        return given
    if backend.format != "gguf" and _REPOSITORY.fullmatch(given):
        return f"hf://{given}"
    return None


def cached_source(backend: Backend, model: str, source: object) -> str | None:
    """The source of a Model that a ModelCache fetches: its own `source` is an address or a
    repository of the Hub, or names repository and file apart. A file is the one that `model` names
    there."""
    if isinstance(source, dict):
        parts = [source.get(name) for name in ("repository", "filename")]
        address = "/".join(part for part in parts if isinstance(part, str) and part)
    else:
        address = source if isinstance(source, str) else ""
    address = _HUB.sub("hf://", address)
    if not address:
        return None
    if "://" not in address:
        address = f"hf://{address}"
    if backend.format == "gguf" and not address.endswith(".gguf"):
        address = f"{address}/{model.rpartition('/')[2]}"
    is_file = backend.format != "gguf" or address.endswith(".gguf")
    return address if is_file and _SOURCE.match(address) and "/" in address[5:] else None
