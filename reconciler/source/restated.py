"""Services whose extraArgs say what fields say: the same services, said by fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Finding
from reconciler.memo import Memo, Same
from reconciler.runtimes.restated import Hit, taken_out
from reconciler.source.declared import DeclaredObjects
from reconciler.source.places import is_within
from reconciler.source.validators import validator

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime

Made = tuple[InferenceService, tuple[Finding, ...]]
_Content = dict[str, Any]


@dataclass(slots=True)
class Settled:
    """Keeps what came out: the same service gives the same again."""

    _made: Memo[ObjectRef, Made] = field(default_factory=Memo)

    def __call__(self, declared: DeclaredObjects) -> tuple[DeclaredObjects, list[Finding]]:
        """The same objects without arguments that say what fields say, and what to say of each."""
        made: dict[ObjectRef, Made] = {}
        for service in declared.services:
            if not _has_args(service):
                continue
            rows = declared.runtimes_of(service)
            if len(rows) == 1 and rows[0].restated:
                key = (Same(service), Same(rows[0]))
                made[service.ref] = self._made.find(
                    service.ref, key, partial(_settled, service, rows[0])
                )
        self._made.keep(made)
        if not made:
            return declared, []
        objects = {**declared.objects, **{ref: service for ref, (service, _) in made.items()}}
        findings = [finding for _, findings in made.values() for finding in findings]
        return replace(declared, objects=objects), findings


def _has_args(service: InferenceService) -> bool:
    spec = service.spec
    return bool(spec.extra_args or any(entry.extra_args for entry in spec.models or ()))


def _settled(service: InferenceService, row: Runtime) -> Made:
    content = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
    findings: list[Finding] = []
    written: dict[str, str] = {}
    for at, part in _parts(content):
        left, hits = taken_out(tuple(part.get("extraArgs", ())), row.restated)
        if hits:
            part["extraArgs"] = list(left)
        for hit in hits:
            findings += _put(service.ref, at, part, hit, written)
    if not findings:
        return service, ()
    check = validator("InferenceService")
    if not check.is_valid(content):
        return _without(service, row), tuple(_wrong(service.ref, content, written))
    return InferenceService.model_validate(content), tuple(findings)


def _without(service: InferenceService, row: Runtime) -> InferenceService:
    """The service without the arguments that its fields cannot say: they are reported already."""
    content = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
    for _, part in _parts(content):
        part["extraArgs"], _ = taken_out(tuple(part.get("extraArgs", ())), row.restated)
    return InferenceService.model_validate(content)


def _parts(content: _Content) -> Iterator[tuple[str, _Content]]:
    """What may have extraArgs, with its path."""
    yield "spec", content["spec"]
    for index, entry in enumerate(content["spec"].get("models") or ()):
        yield f"spec.models[{index}]", entry


def _put(
    ref: ObjectRef, at: str, part: _Content, hit: Hit, written: dict[str, str]
) -> Iterator[Finding]:
    """Give the field its value, unless it has another."""
    where, row = f"{at}.extraArgs[{hit.position}]", hit.row
    if not row.field:
        rule = "FieldIgnored" if row.is_lost else "FieldAnswered"
        yield Finding(rule, ref, where, f"{hit.flag} changes nothing: {row.why}; remove it")
        return
    *inner, last = row.field.split(".")
    for name in inner:
        part = part.setdefault(name, {})
    there = part.get(last)
    if there is None and hit.value is not None:
        part[last] = hit.value
        written[f"{at}.{row.field}"] = where
    elif there not in (None, hit.value):
        message = f"{hit.flag} says {hit.value}, and {row.field} says {there}; keep one of them"
        yield Finding("ForbiddenFlag", ref, where, message)
        return
    yield Finding("FieldAnswered", ref, where, f"{hit.flag} is the field {row.field} here")


def _wrong(ref: ObjectRef, content: _Content, written: Mapping[str, str]) -> Iterator[Finding]:
    """What a field does not take, where the argument says it."""
    from reconciler.source.mistakes import explain

    for mistake in explain(validator("InferenceService"), content):
        where = next((at for own, at in written.items() if is_within(mistake.field, own)), None)
        field = mistake.field.removeprefix("spec.")
        yield Finding("ForbiddenFlag", ref, where or mistake.field, f"{field}: {mistake.message}")
