"""What a process that serves many models lets others do with a single one of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.workload import Command


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
    """How to change, watch and leave out one model while the others keep answering.

    `changed` says, of two Workload.inputs, which models' own settings or bytes differ; None: the
    process itself must be started anew. `preloads` reads from such inputs which models are to be
    up, and how many may be in memory at once. `without` is the same command with models left out;
    `rewritten` says which models two commands tell the process different things of.
    `failed_loads` reads the end of the process's log. `ports` reads from the parsed list of models
    where the process of each loaded one listens on loopback: sleeping ones are left out, as many a
    question wakes them. GET `reload_path` reads the command's files again, POST `load_path` loads.
    """

    changed: Callable[[Mapping[str, Any], Mapping[str, Any]], frozenset[str] | None]
    preloads: Callable[[Mapping[str, Any]], tuple[tuple[str, ...], int]]
    without: Callable[[Command, frozenset[str]], Command]
    rewritten: Callable[[Command, Command], frozenset[str]]
    failed_loads: Callable[[str], Mapping[str, FailedLoad]]
    ports: Callable[[object], Mapping[str, int]]
    reload_path: str
    load_path: str
