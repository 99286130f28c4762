"""A ModelPool of LLMKube -> one service of ours that serves its members' models in turn. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec, Router
from reconciler.api.meta import DEFAULT_NAMESPACE, Metadata, ObjectRef
from reconciler.api.model_settings import ModelEntry, ModelSettings
from reconciler.foreign.field import (
    ANY,
    COUNT,
    TEXT,
    ForeignField,
    Shape,
    alias,
    answered,
    lost,
    one_of,
    reference_to,
)
from reconciler.foreign.remark import Remark

KIND = "ModelPool"
_MEMBERS: Shape = {"type": "array", "minItems": 1, "items": reference_to("inferenceServiceRef")}

FIELDS: tuple[ForeignField, ...] = (
    alias("spec.members", _MEMBERS, "spec.models of one InferenceService, a llamacpp-router"),
    alias("spec.default", TEXT, "`preload: true` in its entry of spec.models"),
    alias("spec.nodeSelector", ANY, "spec.nodeSelector"),
    answered("spec.gpu", COUNT, "its members say how many devices they use", 1),
    answered("spec.swapPolicy", one_of("sticky"), "router.resident is 1", "sticky"),
    answered(
        "spec.swapBudget", TEXT, "a request waits as long as its model takes to load", "300s", "5m"
    ),
)
REQUIRED = ("members",)
APART: tuple[ForeignField, ...] = (
    answered("spec.default", TEXT, "there is no pool, and all members are loaded"),
    lost("spec.nodeSelector", ANY, "there is no pool; write it in each member", {}),
    answered("spec.gpu", COUNT, "its members say how many devices they use", 1),
    answered("spec.swapPolicy", TEXT, "there is no pool, and nothing is swapped", "sticky"),
    answered("spec.swapBudget", TEXT, "there is no pool, and nothing is swapped", "300s", "5m"),
)  # where its members are of several engines

# What a member says, and its entry of models does not: of all members together, or of none.
_SHARED = sorted(
    InferenceServiceSpec.model_fields.keys()
    - ModelSettings.model_fields.keys()
    - {"runtime", "model_ref", "models", "router", "replicas", "suspend"}
)


class Pool(NamedTuple):
    """What a ModelPool says. `default` may be empty."""

    ref: ObjectRef
    metadata: Mapping[str, Any]
    members: tuple[ObjectRef, ...]
    default: str
    node_selector: Mapping[str, str]

    def field(self, index: int) -> str:
        return f"spec.members[{index}].inferenceServiceRef.name"


def read_pool(content: Mapping[str, Any]) -> Pool:
    """The content of a document that passed its schema."""
    metadata, spec = content["metadata"], content["spec"]
    namespace = metadata.get("namespace", DEFAULT_NAMESPACE)
    return Pool(
        ref=ObjectRef("InferenceService", namespace, metadata["name"]),
        metadata=metadata,
        members=tuple(
            ObjectRef("InferenceService", namespace, member["inferenceServiceRef"]["name"])
            for member in spec["members"]
        ),
        default=spec.get("default", ""),
        node_selector=spec.get("nodeSelector", {}),
    )


def misfits(pool: Pool, services: Sequence[InferenceService | None]) -> Iterator[Remark]:
    """The mistakes of a pool; None is a member that is not there."""
    names = [member.name for member in pool.members]
    if pool.default and pool.default not in names:
        text = f"{pool.default} is no member; write one of {', '.join(names)}"
        yield Remark("DanglingReference", "spec.default", text)
    of_model: dict[str, str] = {}
    for index, (name, service) in enumerate(zip(names, services, strict=True)):
        if service is None:
            text = f'no InferenceService named "{name}" in namespace {pool.ref.namespace}'
            yield Remark(
                "DanglingReference", pool.field(index), f"{text}; add it, or remove the member"
            )
        elif name in names[:index]:
            yield Remark("DuplicateObject", pool.field(index), f"{name} is a member twice")
        elif other := of_model.get(service.spec.model_ref or ""):
            text = f"{name} serves {service.spec.model_ref}, as {other} does, and clients of a pool"
            remedy = "declare its file as another Model, or remove the member"
            yield Remark(
                "ModelsRule", pool.field(index), f"{text} ask by the Model's name; {remedy}"
            )
        elif service.spec.model_ref:
            of_model[service.spec.model_ref] = name


def outsiders(
    pool: Pool, services: Sequence[InferenceService | None], single: Collection[str]
) -> Iterator[Remark]:
    """The members that no router serves: with one of these there is no pool, and all members run
    as they are declared. `single` are the runtimes whose models a router can serve."""
    for index, service in enumerate(services):
        spec = service.spec if service else None
        if spec and (spec.runtime not in (None, *single) or not spec.model_ref):
            name = pool.members[index].name
            what = f"runtime {spec.runtime}" if spec.runtime else "no modelRef"
            text = f"{name} has {what}, and a pool swaps models of llama-server: all its members"
            field, remedy = pool.field(index), "run beside each other; remove the pool"
            yield Remark("FieldIgnored", field, f"{text} {remedy}")


def pool_service(
    pool: Pool, members: Sequence[InferenceService], runtime: str
) -> tuple[InferenceService, tuple[Remark, ...]]:
    """The service, and what of its members is another's there. `runtime` serves models in turn."""
    serving = [each for each in members if not each.spec.suspend] or list(members)
    values: dict[str, Any] = {
        "runtime": runtime,
        "models": tuple(_entry(each.spec, pool.default == each.metadata.name) for each in serving),
        "router": Router(resident=1),
        "suspend": all(each.spec.suspend for each in members),
    }
    first = sorted(members, key=lambda each: each.metadata.name != pool.default)
    remarks: list[Remark] = []
    for name in _SHARED:
        stated = [each for each in first if name in each.spec.model_fields_set]
        if stated:
            values[name] = getattr(stated[0].spec, name)
            remarks += _others(pool, name, stated)
    values["node_selector"] = {**values.get("node_selector", {}), **pool.node_selector}
    spec = InferenceServiceSpec.model_construct(_fields_set=set(values), **values)
    made = InferenceService.model_construct(
        api_version="inference.llmkube.dev/v1alpha1",
        kind="InferenceService",
        metadata=_metadata(pool.metadata),
        spec=spec,
    )
    return made, tuple(remarks)


def _entry(spec: InferenceServiceSpec, is_default: bool) -> ModelEntry:
    stated = spec.model_fields_set & ModelSettings.model_fields.keys()
    values: dict[str, Any] = {name: getattr(spec, name) for name in stated}
    values["name"] = spec.model_ref
    if is_default:
        values["preload"] = True
    return ModelEntry.model_construct(_fields_set=set(values), **values)


def _others(pool: Pool, name: str, stated: Sequence[InferenceService]) -> Iterator[Remark]:
    """What other members say of something of which a process has one."""
    chosen, *others = stated
    field = InferenceServiceSpec.model_fields[name].alias or name
    for each in others:
        if getattr(each.spec, name) != getattr(chosen.spec, name):
            names, who = f"{field} of {each.metadata.name}", chosen.metadata.name
            text = f"{names} has no effect: a pool is one process, and has what {who} says"
            yield Remark("FieldIgnored", pool.field(pool.members.index(each.ref)), text)


def _metadata(metadata: Mapping[str, Any]) -> Metadata:
    known = ("name", "namespace", "labels", "annotations")
    return Metadata.model_validate({key: metadata[key] for key in known if key in metadata})
