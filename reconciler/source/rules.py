"""The rules that no JSON Schema can hold, one function each; CHECKS and OBJECT_CHECKS list them.

A check sees every object that passed its schema, whatever became of the others, and says all that
it finds. Adding a rule is a function, a row here and a row in reconciler.problem.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler import __version__
from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import MEMORY_BUDGET_ANNOTATION, ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.api.quantity import parse_bytes
from reconciler.problem import Finding
from reconciler.source.ignored import ignored, without_effect
from reconciler.source.mistakes import explain
from reconciler.source.places import field_path
from reconciler.source.suggest import did_you_mean
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.runtime import Runtime

MAX_HINTS = 50  # a suggestion takes milliseconds: a fleet with more mistakes does without the rest


@dataclass(frozen=True)
class Declared:
    """What one revision declares, as far as the rules look at it.

    `refused` are objects that are there but did not pass their schema: a reference to one is not
    wrong. `check_source` says why a model source cannot be fetched, or None; `hosts_of` names the
    hosts that it would be fetched from.
    """

    objects: Mapping[ObjectRef, Resource]
    refused: Collection[ObjectRef]
    runtimes: Mapping[str, Runtime]
    default_runtime: str
    check_source: Callable[[str], str | None]
    hosts_of: Callable[[str], Collection[str]]

    @cached_property
    def services(self) -> tuple[InferenceService, ...]:
        return tuple(o for o in self.objects.values() if isinstance(o, InferenceService))

    @cached_property
    def nodes(self) -> Mapping[str, FleetNode]:
        found = (o for o in self.objects.values() if isinstance(o, FleetNode))
        return {node.metadata.name: node for node in found}

    @cached_property
    def rows(self) -> Mapping[str, Runtime]:
        """Runtimes by name and by alias."""
        rows = self.runtimes.values()
        return {name: row for row in rows for name in (row.name, *row.aliases)}

    def stated_nodes(self, service: InferenceService) -> list[FleetNode]:
        """The nodes that its placement names, as far as they are there."""
        names = service.spec.placement.nodes
        return [self.nodes[name] for name in names if name in self.nodes]

    def runtimes_of(self, service: InferenceService) -> tuple[Runtime, ...]:
        """The rows it may run under: its own, else the defaults of the nodes it names."""
        key = (service.spec.runtime, service.spec.placement.nodes)
        if key not in self._rows_of:
            self._rows_of[key] = tuple(self._find_rows(*key))
        return self._rows_of[key]

    def _find_rows(self, runtime: str | None, nodes: tuple[str, ...]) -> Iterator[Runtime]:
        stated = (self.nodes[name].spec.default_runtime for name in nodes if name in self.nodes)
        names = [runtime] if runtime else [name or self.default_runtime for name in stated]
        rows = [self.rows.get(name) for name in names or [self.default_runtime]]
        yield from {row.name: row for row in rows if row}.values()

    @cached_property
    def _rows_of(self) -> dict[tuple[str | None, tuple[str, ...]], tuple[Runtime, ...]]:
        return {}


Check = Callable[[Declared], Iterable[Finding]]
ObjectCheck = Callable[[Resource], Iterable[Finding]]


def check_all(declared: Declared) -> tuple[Finding, ...]:
    """Every violation of the rules about objects together."""
    return tuple(finding for check in CHECKS for finding in check(declared))


def check_one(thing: Resource) -> tuple[Finding, ...]:
    """Every violation of the rules about one object: asked once for the bytes of a file."""
    return tuple(finding for check in OBJECT_CHECKS for finding in check(thing))


def one_fleet(declared: Declared) -> Iterator[Finding]:
    fleets = [o for o in declared.objects.values() if isinstance(o, FleetPolicy)]
    for extra in fleets[1:]:
        message = f'at most one Fleet, and "{fleets[0].metadata.name}" is there; remove one of them'
        yield Finding("DuplicateObject", extra.ref, "metadata.name", message)


def required_version(declared: Declared) -> Iterator[Finding]:
    for thing in declared.objects.values():
        wanted = thing.spec.requires if isinstance(thing, FleetPolicy) else None
        if wanted and not _satisfies(__version__, wanted):
            message = f"this is fleet-reconciler {__version__}; install one that fits"
            yield Finding("VersionRequired", thing.ref, "spec.requires", message)


def _satisfies(version: str, requirement: str) -> bool:
    """`>=0.3, <1`: every clause, compared number by number. The schema has checked its form."""
    return all(
        _COMPARE[match[1]](_numbers(version), _numbers(match[2]))
        for match in re.finditer(r"(>=|<=|==|!=|~=|<|>)\s*([0-9.]+)", requirement)
    )


_COMPARE: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "~=": lambda have, want: have >= want and have[:1] == want[:1],
}


def _numbers(version: str) -> tuple[int, ...]:
    """`0.3` is `0.3.0`."""
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return numbers + (0,) * (4 - len(numbers))


def dangling_references(declared: Declared) -> Iterator[Finding]:
    by_scope: dict[tuple[str, str], list[str]] = {}
    hints = 0
    for thing in declared.objects.values():
        for where, ref in thing.references:
            if ref in declared.objects or ref in declared.refused:
                continue
            if not by_scope:
                for known in (*declared.objects, *declared.refused):
                    by_scope.setdefault((known.kind, known.namespace), []).append(known.name)
            hints += 1
            names = by_scope.get((ref.kind, ref.namespace), []) if hints <= MAX_HINTS else []
            hint = did_you_mean(ref.name, names) or "; add it, or correct the name"
            inside = (
                f" in namespace {ref.namespace}" if ref.namespace not in ("", "default") else ""
            )
            message = f'no {ref.kind} named "{ref.name}"{inside}{hint}'
            yield Finding("DanglingReference", thing.ref, where, message)


def forbidden_flags(declared: Declared) -> Iterator[Finding]:
    for service in declared.services:
        spec = service.spec
        if not (spec.extra_args or spec.env or spec.models):
            continue
        lists = [("spec.extraArgs", spec.extra_args)]
        lists += [
            (f"spec.models[{i}].extraArgs", m.extra_args) for i, m in enumerate(spec.models or ())
        ]
        seen: set[str] = set()  # the same argument may be refused by every default of its nodes
        for row in declared.runtimes_of(service):
            found = [(f"{at}[{i}]", why) for at, args in lists for i, why in row.check_args(args)]
            found += [
                (f"spec.env[{i}].name", why)
                for i, variable in enumerate(spec.env)
                if (why := row.check_env(variable.name))
            ]
            for where, why in found:
                if where not in seen:
                    seen.add(where)
                    yield Finding("ForbiddenFlag", service.ref, where, why)


def runtime_options(declared: Declared) -> Iterator[Finding]:
    """Of services that name no runtime; of every other the schema has checked them."""
    for service in declared.services:
        options = service.spec.runtime_options
        if service.spec.runtime or not options:
            continue
        for row in declared.runtimes_of(service):
            # Ask the schema what it would say if the service named the runtime.
            content = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
            content["spec"]["runtime"] = row.name
            for mistake in explain(validator(service.kind), content):
                if mistake.rule == "RuntimeOptions":
                    message = f"{mistake.message} (runtime {row.name})"
                    yield Finding("RuntimeOptions", service.ref, mistake.field, message)


def runtime_rules(declared: Declared) -> Iterator[Finding]:
    """What a runtime's own module finds, such as a name that a router cannot carry."""
    for service in declared.services:
        for row in declared.runtimes_of(service):
            yield from row.check(service)


def sources(declared: Declared) -> Iterator[Finding]:
    for model in declared.objects.values():
        if isinstance(model, Model):
            if problem := declared.check_source(model.spec.source):
                yield Finding("SourceInvalid", model.ref, "spec.source", problem)
            if model.spec.mmproj and (problem := declared.check_source(model.spec.mmproj)):
                yield Finding("SourceInvalid", model.ref, "spec.mmproj", problem)


def mirrors(declared: Declared) -> Iterator[Finding]:
    """A mirror is asked as a source would be, with the path of the model behind it."""
    policies = (o for o in declared.objects.values() if isinstance(o, FleetPolicy))
    for policy in policies:
        for host, url in policy.spec.mirrors.items():
            is_web = url.startswith(("https://", "http://"))
            why = declared.check_source(f"{url.rstrip('/')}/m") if is_web else "not an https URL"
            if why:
                message = f"{why}; write https://HOST/PATH"
                where = field_path(["spec", "mirrors", host])
                yield Finding("SourceInvalid", policy.ref, where, message)


def allowed_hosts(declared: Declared) -> Iterator[Finding]:
    """Models from a host that the Fleet does not allow: held, since nobody may fetch them."""
    yield from not_allowed(declared.objects.values(), declared.hosts_of)


def not_allowed(
    objects: Collection[Resource], hosts_of: Callable[[str], Collection[str]]
) -> Iterator[Finding]:
    """The same of any objects, a Fleet among them or not."""
    policies = (o for o in objects if isinstance(o, FleetPolicy))
    allowed = next((policy.spec.allowed_hosts for policy in policies), None)
    if allowed is None:
        return
    for thing in objects:
        if isinstance(thing, Model):
            for host in hosts_of(thing.spec.source):
                if host not in allowed:
                    message = (
                        f"{host} is not in the Fleet's allowedHosts; add it there if it may be"
                    )
                    yield Finding("SourceNotAllowed", thing.ref, "spec.source", message)


def mixed_placements(declared: Declared) -> Iterator[Finding]:
    for service in declared.services:
        if len(service.spec.placement.nodes) < 2:
            continue
        pools = [n for n in declared.stated_nodes(service) if n.spec.kubernetes is not None]
        if not pools:
            continue
        first = pools[0].metadata.name
        others = "agent nodes" if len(pools) == 1 else "other Kubernetes nodes"
        message = (
            f"{first} is a Kubernetes FleetNode and stands with {others};"
            " name one Kubernetes FleetNode alone, or agent nodes only"
        )
        yield Finding("PlacementMixed", service.ref, "spec.placement.nodes", message)


def equal_names(thing: Resource) -> Iterator[Finding]:
    seen: set[str] = set()
    entries = thing.spec.models if isinstance(thing, InferenceService) else None
    for i, entry in enumerate(entries or ()):
        if entry.name in seen:
            message = f'"{entry.name}" is listed twice, and clients choose by it; remove one'
            yield Finding("NameNotRoutable", thing.ref, f"spec.models[{i}].name", message)
        seen.add(entry.name)


def memory_annotation(thing: Resource) -> Iterator[Finding]:
    text = thing.metadata.annotations.get(MEMORY_BUDGET_ANNOTATION)
    if text is None or not isinstance(thing, InferenceService):
        return
    try:
        parse_bytes(text)
    except ValueError as error:
        where = field_path(["metadata", "annotations", MEMORY_BUDGET_ANNOTATION])
        yield Finding("Schema", thing.ref, where, str(error))


CHECKS: tuple[Check, ...] = (
    one_fleet,
    required_version,
    dangling_references,
    forbidden_flags,
    runtime_options,
    runtime_rules,
    sources,
    mirrors,
    allowed_hosts,
    mixed_placements,
    ignored,
)

OBJECT_CHECKS: tuple[ObjectCheck, ...] = (equal_names, memory_annotation, without_effect)
