"""Services whose extraArgs say what fields say: the same services, said by fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

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

_Content = dict[str, Any]
_ARGUMENT = re.compile(r"(.*\.extraArgs)\[([0-9]+)\]")


class SettledService(NamedTuple):
    """`positions` says of each list of extraArgs where those that are left stood."""

    service: InferenceService
    findings: tuple[Finding, ...] = ()
    positions: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def placed(self, finding: Finding) -> Finding:
        """A finding about an argument that is left, where its author wrote it."""
        of_argument = _ARGUMENT.fullmatch(finding.field)
        if not of_argument or of_argument[1] not in self.positions:
            return finding
        position = self.positions[of_argument[1]][int(of_argument[2])]
        return replace(finding, field=f"{of_argument[1]}[{position}]")


@dataclass(slots=True)
class Settled:
    """Keeps what came out: the same service gives the same again."""

    _made: Memo[ObjectRef, SettledService] = field(default_factory=Memo)

    def __call__(
        self, declared: DeclaredObjects
    ) -> tuple[DeclaredObjects, Mapping[ObjectRef, SettledService]]:
        """The same objects without arguments that say what fields say, and what was made anew."""
        made: dict[ObjectRef, SettledService] = {}
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
            return declared, made
        objects = {**declared.objects, **{ref: each.service for ref, each in made.items()}}
        return replace(declared, objects=objects), made


def _has_args(service: InferenceService) -> bool:
    spec = service.spec
    return bool(spec.extra_args or any(entry.extra_args for entry in spec.models or ()))


def _settled(service: InferenceService, row: Runtime) -> SettledService:
    content = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
    findings: list[Finding] = []
    written: dict[str, str] = {}
    positions: dict[str, tuple[int, ...]] = {}
    for at, part in _parts(content):
        args = tuple(part.get("extraArgs", ()))
        left, hits = taken_out(args, row.restated)
        if hits:
            part["extraArgs"] = [args[position] for position in left]
            positions[f"{at}.extraArgs"] = left
        for hit in hits:
            findings += _put(service.ref, at, part, hit, written)
    if not findings:
        return SettledService(service)
    check = validator("InferenceService")
    if check.is_valid(content):
        return SettledService(InferenceService.model_validate(content), tuple(findings), positions)
    # What its fields cannot say is reported, and is no argument either.
    wrong = tuple(_wrong(service.ref, content, written))
    bare = service.model_dump(by_alias=True, mode="json", exclude_unset=True)
    for (_, part), (_, its) in zip(_parts(bare), _parts(content), strict=True):
        part["extraArgs"] = its.get("extraArgs", [])
    return SettledService(InferenceService.model_validate(bare), wrong, positions)


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
    elif row.adds and f"{at}.{row.field}" in written:
        part[last] = [*there, *hit.value]  # type: ignore[misc]  # lists, by the row
    elif there not in (None, hit.value):
        says = "all" if hit.value is None else hit.value
        message = f"{hit.flag} says {says}, and {row.field} says {there}; keep one of them"
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
