"""How single models of a process that serves many are managed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.fleet.command import Command


@dataclass(frozen=True, slots=True)
class FailedLoad:
    """A model whose process ended by itself. `times` counts failed starts in a row since it was
    loaded last, 0 for one that died after it had been loaded; `log` is what its last process
    printed."""

    times: int
    exit_code: int
    log: str


@dataclass(frozen=True, slots=True)
class ManyModels:
    """How to change, watch and leave out one model while the rest keep serving.

    `changed` returns, for two Workload.inputs, the models whose own settings or bytes differ; None:
    the process itself must be restarted. `preloads` reads from such inputs the models to keep
    loaded, and how many may be in memory at once. `without` is the same command with models left
    out; `rewritten` returns the models for which two commands differ. `failed_loads` reads the end
    of the process's log. `ports` reads from the parsed list of models the loopback port of each
    loaded one's process, without sleeping ones, which many requests would wake. GET `reload_path`
    makes the process read its files again, POST `load_path` loads a model.
    """

    changed: Callable[[Mapping[str, Any], Mapping[str, Any]], frozenset[str] | None]
    preloads: Callable[[Mapping[str, Any]], tuple[tuple[str, ...], int]]
    without: Callable[[Command, frozenset[str]], Command]
    rewritten: Callable[[Command, Command], frozenset[str]]
    failed_loads: Callable[[str], Mapping[str, FailedLoad]]
    ports: Callable[[object], Mapping[str, int]]
    reload_path: str
    load_path: str
