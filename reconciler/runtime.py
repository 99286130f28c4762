"""What a runtime module provides. A runtime is data and functions, not a base class. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from reconciler.memory import MemorySettings
from reconciler.workload import Command, ModelFile, Workload


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What rendering needs to know of a node. The defaults are placeholders for a plan."""

    binary: tuple[str, ...] = ("{binary}",)  # the program, with leading words such as `python -m`
    port: str = "{port}"
    host: str = "127.0.0.1"
    threads: str = "{threads}"
    directory: str = "{dir}"  # of this workload: presets, caches
    model_paths: Mapping[str, str] | None = (
        None  # Model name -> absolute path; None: `{store}/NAME`
    )

    def model_path(self, model: ModelFile) -> str:
        if self.model_paths is None:
            return f"{{store}}/{model.sha256 or model.name}"
        return self.model_paths[model.name]


@dataclass(frozen=True, slots=True)
class Engine:
    """How a node finds the program: names on PATH, and what to tell a person who lacks it."""

    programs: tuple[str, ...]
    install_hint: str
    embedded: bool = False  # the embedded engine can stand in for it


@dataclass(frozen=True, slots=True)
class Runtime:
    """One row of the table.

    `serves_many` decides the exclusion rule: a runtime that serves many demands `models[]` and
    forbids `modelRef`; every other demands `modelRef` and forbids `models[]`.
    `command` renders a Workload on a node; nothing in it may depend on another service.
    `memory_settings` says what the process will use, one a model; None where nothing is known.
    `check_args` returns why an extra argument or variable is refused: (index or name, reason) pairs.
    """

    name: str
    formats: frozenset[str]
    serves_many: bool
    options: type[BaseModel]
    engine: Engine
    command: Callable[[Workload, NodeFacts], Command]
    memory_settings: Callable[[Workload, ModelFile], MemorySettings] | None = None
    check_args: Callable[[tuple[str, ...]], tuple[tuple[int, str], ...]] = lambda _: ()
    check_env: Callable[[str], str | None] = lambda _: None
    aliases: tuple[str, ...] = ()
