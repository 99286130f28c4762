"""A few well-known models by short names: rows of catalogue.toml beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from reconciler.api.quantity import parse_bytes


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """`memory_bytes` is what it takes with the default settings, by the catalogue's own figure.
    `sha256` is the file's, where a source means the same one for ever."""

    source: str
    quantisation: str
    memory_bytes: int
    sha256: str | None = None


def catalogue() -> Mapping[str, CatalogueEntry]:
    """Every model by its short name."""
    text = files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
    return {
        name: CatalogueEntry(
            row["source"], row["quantisation"], parse_bytes(row["memory"]), row.get("sha256")
        )
        for name, row in tomllib.loads(text).items()
    }
