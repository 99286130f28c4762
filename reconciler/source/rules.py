"""The rules that JSON Schema cannot express, one function each; CHECKS and OBJECT_CHECKS list them.

A check sees every object that passed its schema, even if other objects did not, and reports
everything it finds. A new rule is a function, a row here and a row in reconciler.api.problem.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from reconciler import __version__
from reconciler.api.fleet import FleetPolicy
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import MEMORY_BUDGET_ANNOTATION, Resource
from reconciler.api.model import Model, is_on_node
from reconciler.api.problem import Finding
from reconciler.api.quantity import parse_bytes
from reconciler.source.declared import DeclaredObjects
from reconciler.source.ignored import ignored, without_effect
from reconciler.source.label_rules import labels
from reconciler.source.places import field_path
from reconciler.source.pod_rules import (
    claims_of_models,
    one_budget,
    one_cache,
    volumes_in_place,
)
from reconciler.source.security_rules import rights_allowed
from reconciler.source.suggest import did_you_mean
from reconciler.source.traffic_rules import (
    backends,
    fewest_and_most,
    unanswered_shares,
    woken_from_none,
)
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime

MAX_HINTS = 50  # a suggestion takes milliseconds: in a fleet with more mistakes the rest have none


Check = Callable[[DeclaredObjects], Iterable[Finding]]
ObjectCheck = Callable[[Resource], Iterable[Finding]]


def check_all(declared: DeclaredObjects) -> tuple[Finding, ...]:
    """Every violation of the rules about several objects."""
    return tuple(finding for check in CHECKS for finding in check(declared))


def check_one(thing: Resource) -> tuple[Finding, ...]:
    """Every violation of the rules about one object: checked once for the bytes of a file."""
    return tuple(finding for check in OBJECT_CHECKS for finding in check(thing))


def one_fleet(declared: DeclaredObjects) -> Iterator[Finding]:
    fleets = [o for o in declared.objects.values() if type(o) is FleetPolicy]
    for extra in fleets[1:]:
        message = f'at most one Fleet, and "{fleets[0].metadata.name}" is there; remove one of them'
        yield Finding("DuplicateObject", extra.ref, "metadata.name", message)


def required_version(declared: DeclaredObjects) -> Iterator[Finding]:
    for thing in declared.objects.values():
        wanted = thing.spec.requires if type(thing) is FleetPolicy else None
        try:
            fits = not wanted or _satisfies(__version__, wanted)
            message = f"this is fleet-reconciler {__version__}; install one that fits"
        except ValueError:
            fits, message = False, f"{wanted!r} means nothing in PEP 440; write ~=1.0 for ~=1"
        if not fits:
            yield Finding("VersionRequired", thing.ref, "spec.requires", message)


def _satisfies(version: str, requirement: str) -> bool:
    """PEP 440: `>=0.3, <1`, `~=0.3`. Raises ValueError, for example for `~=1`."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(requirement).contains(version, prereleases=True)


def dangling_references(declared: DeclaredObjects) -> Iterator[Finding]:
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


def forbidden_flags(declared: DeclaredObjects) -> Iterator[Finding]:
    for service in declared.services:
        spec = service.spec
        if not (spec.extra_args or spec.env or spec.models):
            continue
        lists = [("spec.extraArgs", spec.extra_args)]
        lists += [
            (f"spec.models[{i}].extraArgs", m.extra_args) for i, m in enumerate(spec.models or ())
        ]
        seen: set[str] = set()  # several of the nodes' defaults may refuse the same argument
        for row in declared.runtimes_of(service):
            refused = [(f"{at}[{i}]", why) for at, args in lists for i, why in row.check_args(args)]
            refused += [
                (f"spec.env[{i}].name", why)
                for i, variable in enumerate(spec.env)
                if (why := row.check_env(variable.name))
            ]
            for where, why in refused:
                if where not in seen:
                    seen.add(where)
                    yield Finding("ForbiddenFlag", service.ref, where, why)


def runtime_options(declared: DeclaredObjects) -> Iterator[Finding]:
    """For services without a runtime; all others were checked by the schema."""
    for service in declared.services:
        if service.spec.runtime_options and not service.spec.runtime:
            yield from _wrong_options(service, declared.runtimes_of(service))


def _wrong_options(service: InferenceService, rows: Iterable[Runtime]) -> Iterator[Finding]:
    """By the schema, as if the service named the runtime."""
    from reconciler.source.mistakes import explain

    for row in rows:
        content = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
        content["spec"]["runtime"] = row.name
        for mistake in explain(validator(service.kind), content):
            if mistake.rule == "RuntimeOptions":
                message = f"{mistake.message} (runtime {row.name})"
                yield Finding("RuntimeOptions", service.ref, mistake.field, message)


def runtime_rules(declared: DeclaredObjects) -> Iterator[Finding]:
    """Problems that a runtime's own module finds, such as a name that a router cannot use."""
    for service in declared.services:
        for row in declared.runtimes_of(service):
            yield from row.check(service)


def sources(declared: DeclaredObjects) -> Iterator[Finding]:
    for model in declared.objects.values():
        for part, at, _ in model.parts if type(model) is Model else ():
            if problem := declared.check_source(part.spec.source):
                yield Finding("SourceInvalid", model.ref, at, problem)


def mirrors(declared: DeclaredObjects) -> Iterator[Finding]:
    """A mirror is checked like a source, with the path of the model behind it."""
    policies = (o for o in declared.objects.values() if type(o) is FleetPolicy)
    for policy in policies:
        for host, url in policy.spec.mirrors.items():
            is_web = url.startswith(("https://", "http://"))
            why = declared.check_source(f"{url.rstrip('/')}/m") if is_web else "not an https URL"
            if why:
                message = f"{why}; write https://HOST/PATH"
                where = field_path(["spec", "mirrors", host])
                yield Finding("SourceInvalid", policy.ref, where, message)


def allowed_hosts(declared: DeclaredObjects) -> Iterator[Finding]:
    """Models from a host that the Fleet does not allow: held, since they may not be fetched."""
    yield from not_allowed(declared.objects.values(), declared.hosts_of)


def not_allowed(
    objects: Collection[Resource], hosts_of: Callable[[str], Collection[str]]
) -> Iterator[Finding]:
    """The same for any objects, with or without a Fleet among them."""
    policies = (o for o in objects if type(o) is FleetPolicy)
    allowed = next((policy.spec.allowed_hosts for policy in policies), None)
    if allowed is None:
        return
    for thing in objects:
        for part, at, _ in thing.parts if type(thing) is Model else ():
            for host in hosts_of(part.spec.source):
                if host not in allowed:
                    message = (
                        f"{host} is not in the Fleet's allowedHosts; add it there if it may be"
                    )
                    yield Finding("SourceNotAllowed", thing.ref, at, message)


def mixed_placements(declared: DeclaredObjects) -> Iterator[Finding]:
    for service in declared.services:
        if len(service.spec.placement.nodes) < 2:
            continue
        pools = [n for n in declared.stated_nodes(service) if n.spec.kubernetes is not None]
        if not pools:
            continue
        first = pools[0].metadata.name
        others = "agent nodes" if len(pools) == 1 else "other Kubernetes nodes"
        message = (
            f"{first} is a Kubernetes FleetNode and is listed with {others};"
            " name one Kubernetes FleetNode alone, or agent nodes only"
        )
        yield Finding("PlacementMixed", service.ref, "spec.placement.nodes", message)


def equal_names(thing: Resource) -> Iterator[Finding]:
    seen: set[str] = set()
    entries = thing.spec.models if type(thing) is InferenceService else None
    for i, entry in enumerate(entries or ()):
        if entry.name in seen:
            message = f'"{entry.name}" is listed twice, and clients choose by it; remove one'
            yield Finding("NameNotRoutable", thing.ref, f"spec.models[{i}].name", message)
        seen.add(entry.name)


def memory_annotation(thing: Resource) -> Iterator[Finding]:
    text = thing.metadata.annotations.get(MEMORY_BUDGET_ANNOTATION)
    if text is None or type(thing) is not InferenceService:
        return
    try:
        parse_bytes(text)
    except ValueError as error:
        where = field_path(["metadata", "annotations", MEMORY_BUDGET_ANNOTATION])
        yield Finding("Schema", thing.ref, where, str(error))


def projector(thing: Resource) -> Iterator[Finding]:
    """A projector must be one file: there is no rule to choose among several."""
    if type(thing) is Model and thing.spec.mmproj is not None:
        from reconciler.models.sources import is_folder

        if is_folder(thing.spec.mmproj):
            message = "a projector is one file, and this may be several; name the file"
            yield Finding("SourceInvalid", thing.ref, "spec.mmproj", message)


def in_place(thing: Resource) -> Iterator[Finding]:
    """Only what lies on the node can be served where it lies."""
    if type(thing) is Model and thing.spec.in_place and not is_on_node(thing.spec.source):
        message = "only a file:// source lies on the node already; name one, or remove it"
        yield Finding("SourceInvalid", thing.ref, "spec.inPlace", message)


def in_a_volume(thing: Resource) -> Iterator[Finding]:
    """What is served there is named before anybody can look into a folder."""
    if type(thing) is not Model or not thing.spec.source.startswith(("pvc://", "image://")):
        return
    is_named = thing.spec.files and not any(set("*?[") & set(name) for name in thing.spec.files)
    if thing.spec.source.endswith("/") and thing.format == "gguf" and not is_named:
        message = "nobody looks into a folder of a volume; name the GGUF file, here or in files"
        yield Finding("SourceInvalid", thing.ref, "spec.source", message)


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
    claims_of_models,
    rights_allowed,
    backends,
    unanswered_shares,
    ignored,
)

OBJECT_CHECKS: tuple[ObjectCheck, ...] = (
    equal_names,
    memory_annotation,
    labels,
    projector,
    in_place,
    in_a_volume,
    volumes_in_place,
    one_budget,
    one_cache,
    fewest_and_most,
    woken_from_none,
    without_effect,
)
