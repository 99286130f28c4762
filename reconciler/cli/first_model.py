"""Which model `reconcile init` serves: the one that was asked for, else the largest on this disk
that fits, else a small one of the catalogue."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from reconciler.api.errors import HeaderError, InvalidFleet, ModelError, UsageError
from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
from reconciler.api.model import is_on_node
from reconciler.api.quantity import parse_bytes, show_bytes
from reconciler.cli.first_fleet import FirstModel, listed, of_found
from reconciler.console.edge import tell
from reconciler.console.option import programs_of
from reconciler.report.terminal import counted, printable

if TYPE_CHECKING:
    from agent.models.found import FoundModels
    from reconciler.catalogue import CatalogueEntry
    from reconciler.loop.desired import Desired
    from reconciler.source.checkout import Checkout

_SMALL, _SMALL_SIZE = "smollm2-135m", "94 MiB"  # of the catalogue
_MOST_HEADERS = 12  # that are read, of models that are here, until one fits


@dataclass(frozen=True, slots=True)
class Destination:
    """Where it is to be served: this machine's document, and the folder that it comes to."""

    checkout: Checkout
    node: Mapping[str, Any]

    @property
    def most_bytes(self) -> int:
        """No model that is larger fits: its memory, and that of devices that have their own."""
        hardware = self.node["spec"]["hardware"]
        devices = (device.get("memory", "0") for device in hardware.get("devices", ()))
        own = sum(parse_bytes(size) for size in devices if size[:1].isdigit())
        return own + parse_bytes(hardware["memory"])

    def why_not(self, weights: FirstModel) -> tuple[str, str] | None:
        """The rule and the words that keep it from being served here. Raises InvalidFleet."""
        desired = self._decided(weights)
        service = ObjectRef("InferenceService", DEFAULT_NAMESPACE, weights.service)
        for hold in desired.assignment.holds:
            if service in hold.services:
                return hold.finding.rule, hold.finding.message
        return None

    def _decided(self, weights: FirstModel) -> Desired:
        from reconciler.cli.fleet import errors_of
        from reconciler.loop.desired import Desired
        from reconciler.source.added import AddedFiles
        from reconciler.source.load import reader

        checkout = AddedFiles(self.checkout, weights.files(self.node))
        loaded = reader()(checkout, frozenset())
        if loaded.fleet is None:
            raise InvalidFleet(errors_of(loaded.problems))
        model = ObjectRef("Model", DEFAULT_NAMESPACE, weights.name)
        facts = {model: weights.facts} if weights.facts else {}
        return Desired.of(checkout, loaded, loaded.fleet, lambda _, __: facts)


def choose(args: argparse.Namespace, machine: Destination) -> FirstModel | None:
    """None: none fits, or the one that is offered is not wanted, which was said. Raises UsageError,
    ModelError, InvalidFleet."""
    _say_without_engine(args)
    if args.model is not None:
        return _asked_for(args, machine)
    here = _models_here(args)
    weights = _first_that_fits(here, machine)
    if here.models:
        _say_found(here, weights)
    return weights or _small(args, machine)


def _say_without_engine(args: argparse.Namespace) -> None:
    from agent.engines.engine import find_engine
    from reconciler.api.errors import EngineError
    from reconciler.runtimes import DEFAULT_RUNTIME, RUNTIMES

    try:
        find_engine(RUNTIMES[DEFAULT_RUNTIME], programs_of(args))
    except EngineError as error:
        tell(f"warning: {error}")


def _models_here(args: argparse.Namespace) -> FoundModels:
    from agent.models.found import find_models
    from agent.state.directory import StateDir, state_root
    from reconciler.catalogue import catalogue

    stated = os.environ.get("MODEL_CACHE_PATH", "")
    store = Path(stated) if stated else StateDir(state_root(args.state_dir)).models
    here = find_models(os.environ, Path.home(), store if store.is_dir() else None)
    names = {entry.source: name for name, entry in catalogue().items()}
    known = (replace(model, name=names.get(model.source, model.name)) for model in here.models)
    return replace(here, models=tuple(known))


def _first_that_fits(here: FoundModels, machine: Destination) -> FirstModel | None:
    """One that clients can chat with, if there is one among those that fit."""
    other, most = None, machine.most_bytes
    for model in [m for m in here.models if m.size_bytes <= most][:_MOST_HEADERS]:
        try:
            weights = of_found(model, model.facts())
        except HeaderError as error:
            tell(printable(f"left out: {model.path}: {error}"))
            continue
        if why := machine.why_not(weights):
            tell(printable(f"left out: {model.name}: {': '.join(why)}"))
            continue
        if weights.chats:
            return weights
        other = other or weights
    return other


def _say_found(here: FoundModels, weights: FirstModel | None) -> None:
    lines = listed(here.models, weights.source if weights else None, here.cut)
    title = f"{counted('model', len(here.models))} on this disk (--model NAME takes another):"
    tell("\n".join(map(printable, (title, *lines))))


def _asked_for(args: argparse.Namespace, machine: Destination) -> FirstModel | None:
    from agent.models.found import model_at, models_below

    path = _path_of(args.model)
    if path is not None and path.is_dir():
        here = models_below(path)
        if not here.models:
            raise UsageError(f"--model {args.model}: no *.gguf file is in that folder")
        weights = _first_that_fits(here, machine)
        _say_found(here, weights)
        return weights
    if path is not None and (path.is_file() or "/" in args.model):
        if not path.is_file():
            raise UsageError(f"--model {args.model}: {_elsewhere(args.model)}")
        if (file := model_at(path)) is None:
            raise UsageError(
                f"--model {args.model}: is empty, or has a name that no Model can have; give its"
                " first part, by a path of printable letters"
            )
        try:
            return _if_it_fits(of_found(file, file.facts()), machine)
        except HeaderError as error:
            raise ModelError(f"{path}: {error}") from error
    if "://" in args.model:
        return _if_it_fits(_of_source(args.model), machine)
    return _by_name(args, machine)


def _elsewhere(path: str) -> str:
    """What is meant by a path that leads to no file."""
    from reconciler.models.pasted import as_missing, as_source

    return as_source(path) or as_missing(path) or "no model file is there"


def _path_of(word: str) -> Path | None:
    """What a word means on this disk; None: it is an address elsewhere."""
    if is_on_node(word):
        return Path(unquote(urlsplit(word).path))
    return None if "://" in word else Path(word).expanduser().absolute()


def _of_source(source: str) -> FirstModel:
    from agent.models.found import object_name
    from reconciler.models.sources import check_source
    from reconciler.models.url import shown

    if reason := check_source(source):
        raise UsageError(f"--model {source}: {reason}")
    path = re.sub(r"@[^/@]*$", "", source.partition("?")[0]).rstrip("/")
    return FirstModel(object_name(path.rpartition("/")[2]), source, shown(source))


def _by_name(args: argparse.Namespace, machine: Destination) -> FirstModel | None:
    from reconciler.catalogue import catalogue
    from reconciler.models.pasted import as_missing, as_source
    from reconciler.source.suggest import did_you_mean

    known = catalogue()
    here = {model.name: model for model in reversed(_models_here(args).models)}
    if (model := here.get(args.model)) is not None:
        try:
            return _if_it_fits(of_found(model, model.facts()), machine)
        except HeaderError as error:
            raise ModelError(f"{model.path}: {error}") from error
    if args.model in known:
        return _of_catalogue(args.model, known[args.model], machine)
    if pasted := as_source(args.model) or as_missing(args.model):
        raise UsageError(f"--model {args.model}: {pasted}")
    hint = did_you_mean(args.model, (*here, *known)) or "; give its address or its path"
    raise UsageError(
        f"--model {args.model}: no model of that name is on this disk or in the catalogue"
        f" ({', '.join(known)}){hint}"
    )


def _if_it_fits(weights: FirstModel, machine: Destination) -> FirstModel | None:
    if why := machine.why_not(weights):
        tell(printable(f"{weights.name} cannot be served here: {': '.join(why)}"))
        tell("Nothing was written.")
        return None
    return weights


def _of_catalogue(name: str, entry: CatalogueEntry, machine: Destination) -> FirstModel | None:
    if entry.memory_bytes > machine.most_bytes:
        has = show_bytes(machine.most_bytes)
        tell(f"{name} takes {show_bytes(entry.memory_bytes)}, and this machine has {has}")
        tell("Nothing was written.")
        return None
    about = f"{entry.quantisation}, of the catalogue"
    return _if_it_fits(FirstModel(name, entry.source, about, entry.sha256), machine)


def _small(args: argparse.Namespace, machine: Destination) -> FirstModel | None:
    from reconciler.catalogue import catalogue

    weights = _of_catalogue(_SMALL, catalogue()[_SMALL], machine)
    if weights is None:
        return None
    tell(
        f"No model was found that fits. {_SMALL} is a small one to begin with: {_SMALL_SIZE} to"
        " download; --model names any other."
    )
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()) or _is_wanted():
        return weights
    tell("Nothing was written.")
    return None


def _is_wanted() -> bool:
    print("Write it? [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("", "y", "yes") and answer != ""
