"""What a runtime module provides. Pure.

A runtime is data and functions, not a base class. Adding one: `docs/runtimes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.fleet.command import Command, ServedModel
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.memory import MemorySettings
from reconciler.runtimes.many import ManyModels
from reconciler.runtimes.restated import Table
from reconciler.runtimes.timing import EngineTimings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What rendering needs to know of a node. The defaults are placeholders for a plan."""

    # the program, with leading arguments such as `python -m`
    binary: tuple[str, ...] = ("{binary}",)
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
class EngineProgram:
    """How a node finds the program: names on PATH, and what to tell a person who lacks it. Without
    names it is in an image, and no node has it.

    Its version is that of `package`, a Python distribution, or what it prints for --version.
    """

    programs: tuple[str, ...]
    install_hint: str
    embedded: bool = False  # the embedded engine can stand in for it
    package: str | None = None
    tells_version: bool = True


@dataclass(frozen=True, slots=True)
class Api:
    """One thing that clients can ask of a service, and where below its address."""

    name: str
    path: str
    # Anthropic's clients add the whole path to an address, OpenAI's what comes after `/v1`.
    below_v1: bool = True


CHAT = Api("chat", "/v1/chat/completions")
COMPLETIONS = Api("completions", "/v1/completions")
RESPONSES = Api("responses", "/v1/responses")
MESSAGES = Api("messages", "/v1/messages", below_v1=False)
EMBEDDINGS = Api("embeddings", "/v1/embeddings")
RERANK = Api("rerank", "/v1/rerank")
CHATS = frozenset({CHAT, RESPONSES, MESSAGES})
"""Those that need a chat template."""


@dataclass(frozen=True, slots=True)
class PodImages:
    """The default images of a runtime; a Fleet may name others. `program` is its path or name
    within each of them, `by_accelerator` an image for each kind of device, or `cpu`."""

    program: str
    by_accelerator: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServingState:
    """A process's list of models, judged. `reason` is empty if the list is the expected one; else a
    CamelCase reason why it is not ready, with a message."""

    models: tuple[ServedModel, ...] = ()
    reason: str = ""
    message: str = ""


def lists_all(document: object, names: tuple[str, ...]) -> ServingState:
    """An OpenAI list of models (`{data: [{id, aliases}]}`) is right when it has every name."""
    listed_names = {name for entry in listed(document) for name in names_in(entry)}
    if absent := [name for name in names if name not in listed_names]:
        shown = ", ".join(sorted(listed_names)) or "nothing"
        return ServingState((), "WrongModel", f"serves {shown} instead of {', '.join(absent)}")
    return ServingState(tuple(ServedModel(name, "loaded") for name in names))


def listed(document: object) -> tuple[Mapping[str, object], ...]:
    """The entries of an OpenAI list of models; none where the answer is anything else."""
    data = document.get("data") if isinstance(document, dict) else None
    return tuple(e for e in (data if isinstance(data, list) else ()) if isinstance(e, dict))


def names_in(entry: Mapping[str, object]) -> tuple[str, ...]:
    """The names under which clients may ask for a listed model: its id, then its aliases."""
    aliases = entry.get("aliases")
    names = (entry.get("id"), *(aliases if isinstance(aliases, list) else ()))
    return tuple(word for word in names if isinstance(word, str))


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings of a live process that differ from the declared ones, a sentence each. `differs` is
    given a function that GETs a path as parsed JSON, and the settings of Workload.inputs."""

    differs: Callable[[Callable[[str], object], Mapping[str, Any]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """One row of the table.

    `serves_many` decides the exclusion rule: a runtime that serves many requires `models[]` and
    forbids `modelRef`; every other requires `modelRef` and forbids `models[]`. `needs_model` False:
    it may have no `modelRef` either.

    `fields` are the spec fields it renders from; a change of any other never restarts its process.
    `command` renders a Workload on a node; nothing in it may depend on another service.
    `memory_settings` are the settings for the estimate, of one model. `stated_memory`, where a
    runtime has it, is what the author of a service says in place of any estimate.

    `check_args` returns why extra arguments are refused, as (index, reason) pairs; `check_env` does
    it for one variable. `arguments` are the names of those that are not, `variables` a pattern of
    them. `restated` are arguments that its fields say. `check` finds what no schema can express,
    such as more preloads than places.

    `serving` identifies a process: it compares the parsed JSON of its probe's `models_path` with
    the public names that it should serve. `key_variable` is the variable with the API key that it
    requires of clients; None: it cannot require one.

    `metrics_path` has its metrics in the Prometheus format, and `tokens_metric` is the counter of
    generated tokens; a runtime that serves many returns them for one model at a time,
    `?model=NAME`. None: no metrics. `requests_metric` is the number of requests in flight per pod,
    the default metric for autoscaling. None: CPU, the default of Kubernetes.

    `counts_requests`: the probe of its command can tell how many requests are in flight, so that
    they are waited for.

    `images` are for pods. None: it runs in pods only if the fleet names an image.
    `takes_projector`: a model may have spec.mmproj.

    `timings` is for an engine that times its own answers; a benchmark of any other is timed from
    outside.

    `apis` are what a process with these settings is for; an engine may answer more.

    `asleep` returns whether a process has put its model to sleep, given a function that GETs a path
    as parsed JSON, without waking it. None: unknown, or `serving` tells it.
    """

    name: str
    formats: frozenset[str]
    serves_many: bool
    options: type[BaseModel]
    engine: EngineProgram
    command: Callable[[Workload, NodeFacts], Command]
    memory_settings: Callable[[Workload, ModelFile], MemorySettings]
    fields: frozenset[str]
    apis: Callable[[Mapping[str, Any]], tuple[Api, ...]] = lambda _: (CHAT, COMPLETIONS)
    check_args: Callable[[tuple[str, ...]], tuple[tuple[int, str], ...]] = lambda _: ()
    check_env: Callable[[str], str | None] = lambda _: None
    arguments: tuple[str, ...] = ()
    restated: Table = field(default_factory=dict)
    variables: str = ""
    check: Callable[[InferenceService], tuple[Finding, ...]] = lambda _: ()
    serving: Callable[[object, tuple[str, ...]], ServingState] = lists_all
    many: ManyModels | None = None
    effective: Effective | None = None
    asleep: Callable[[Callable[[str], object]], bool] | None = None
    metrics_path: str | None = None
    tokens_metric: str | None = None
    requests_metric: str | None = None
    counts_requests: bool = False
    images: PodImages | None = None
    key_variable: str | None = None
    timings: EngineTimings | None = None
    takes_projector: bool = False
    needs_model: bool = True
    stated_memory: Callable[[Mapping[str, Any]], int | None] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def open_facts(self) -> NodeFacts:
        """Those of a node that is not known: its program is the one on its PATH."""
        return NodeFacts(binary=self.engine.programs[:1])
