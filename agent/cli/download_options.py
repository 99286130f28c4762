"""How a person says what downloads may take of this machine; every word also in the environment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.console.option import Option
from reconciler.console.value import file_path

if TYPE_CHECKING:
    from agent.models.store import ModelStore
    from agent.node.settings import DownloadSettings

_MOST_AT_ONCE = 64


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise ValueError(f"give a number from 1 to {_MOST_AT_ONCE}")
    return int(text)


def _size(text: str) -> int:
    from reconciler.api.quantity import parse_bytes

    return parse_bytes(text)


MODEL_STORE = Option(
    "model-store",
    "where models are kept (default: $MODEL_CACHE_PATH, else in the state directory)",
    "DIR",
    read=file_path,
    foreign_variable="MODEL_CACHE_PATH",
)
DOWNLOAD_OPTIONS = (
    Option("max-downloads", "how many models are downloaded at once (default: 2)", "COUNT",
           read=_count),
    Option("keep-free", "what downloads leave free on the models' disk (default: 5 % of it, at"
           " most 10Gi)", "SIZE", read=_size),
    Option("hf-token-file", "a file with the token for hf:// (default: HF_TOKEN, then what"
           " `hf auth login` kept)", "FILE", read=file_path),
)  # fmt: skip


def download_settings(args: argparse.Namespace) -> DownloadSettings:
    from agent.node.settings import DownloadSettings

    return DownloadSettings(args.max_downloads, args.keep_free, args.hf_token_file)


def store_of(args: argparse.Namespace, state_models: Path, *, pin: bool = False) -> ModelStore:
    """The store that the options mean; `state_models` is the one in the state directory."""
    from agent.models.store import ModelStore

    settings = download_settings(args)
    return ModelStore(
        args.model_store or state_models,
        max_downloads=settings.max_running,
        min_free_bytes=settings.keep_free_bytes,
        hf_token_file=settings.token_file,
        pin=pin,
    )
