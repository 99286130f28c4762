"""Where each flag of a command comes from. Pure.

No table says it, which each runtime would have to keep: the command is rendered again with one
thing changed, and the flags that change with it come from that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from reconciler.api.inferenceservice import InferenceService
from reconciler.fleet.command import Command
from reconciler.fleet.workload import Workload
from reconciler.foreign.rows import theirs_of
from reconciler.runtimes.runtime import NodeFacts

Render = Callable[[Workload, NodeFacts], Command]
Flags = Mapping[str, Sequence[str]]

_FACTS = NodeFacts(host="{host}")
_NODE, _MODEL, _ALWAYS = "the node", "the Model", "the same for every service"


def flag_origins(
    service: InferenceService,
    workload: Workload,
    render: Render,
    written: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[str]]:
    """What the command line is rendered from, and the flags that come from it: what the service
    states first, then its Model and the node, then defaults. `written` are the fields of LLMKube
    that say ours."""
    shown = _flags(workload, render)
    touched = {path: _changed(shown, path, workload, render) for path in sorted(workload.settings)}
    renamed = [replace(m, name=f"{m.name}x", sha256=None) for m in workload.models]
    of_model = _differing(shown, replace(workload, models=tuple(renamed)), render)
    sources: defaultdict[str, list[str]] = defaultdict(list)
    for flag, arguments in shown.items():
        paths = [path for path, flags in touched.items() if flag in flags]
        if paths:
            source = _labelled(paths, service, flag, written)
        elif flag in of_model:
            source = _MODEL
        else:
            source = _NODE if any("{" in word for word in arguments) else _ALWAYS
        sources[source].append(flag)
    return dict(sorted(sources.items(), key=lambda item: _rank(item[0])))


def argument_groups(argv: Sequence[str]) -> list[list[str]]:
    """The program with what belongs to it, then each flag with its value."""
    groups: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return groups


def _flags(workload: Workload, render: Render) -> dict[str, list[str]]:
    """By name, with all values of one that is repeated."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name, *values in argument_groups([*map(str, render(workload, _FACTS).argv)])[1:]:
        by_name[name] += values
    return dict(by_name)


def _changed(shown: Flags, path: str, workload: Workload, render: Render) -> set[str]:
    """The flags that another value of this setting gives other words, or takes away."""
    for other in _others(workload.settings[path]):
        settings = {**workload.settings, path: other}
        if differing := _differing(shown, replace(workload, settings=settings), render):
            return differing
    return set()


def _differing(shown: Flags, changed: Workload, render: Render) -> set[str]:
    try:
        flags = _flags(changed, render)
    except (KeyError, TypeError, ValueError):
        return set()  # not a value that this setting can have
    return {name for name, arguments in shown.items() if flags.get(name) != arguments}


def _others(value: Any) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    """Other values, one of which a setting of this kind may have."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 2**20  # bytes are rendered in whole MiB
    elif isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, list):
        yield []
    yield from ("1", True)


def _labelled(
    paths: Sequence[str], service: InferenceService, flag: str, written: Mapping[str, str]
) -> str:
    stated = [_named(f"spec.{path}", flag, written) for path in paths if _is_stated(path, service)]
    default = [f"spec.{path}" for path in paths if not _is_stated(path, service)]
    return ", ".join(stated + ([f"default of {', '.join(default)}"] if default else []))


def _named(field: str, flag: str, written: Mapping[str, str]) -> str:
    theirs = theirs_of(written, field, flag)
    return f"{theirs} ({field} here)" if theirs else field


def _is_stated(path: str, service: InferenceService) -> bool:
    part: Any = service.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for name in path.split("."):
        if not isinstance(part, dict):
            break  # a list, such as env: its items are all stated
        part = part.get(name)
    return part is not None


def _rank(source: str) -> int:
    if source.startswith("spec."):
        return 0
    return {_MODEL: 1, _NODE: 2, _ALWAYS: 4}.get(source, 3)
