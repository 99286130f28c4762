"""Files beside a model that guess tokens for it, as Models that no document declares. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.fleet.fleet import Origin
from reconciler.memo import Memo, Same

DraftFiles = Memo[ObjectRef, Model]


def with_draft_files(
    objects: Mapping[ObjectRef, Resource], origins: dict[ObjectRef, Origin], made: DraftFiles
) -> tuple[dict[ObjectRef, Resource], tuple[Finding, ...]]:
    """The objects and these Models, each with the origin of the one that it is for; and what names
    a file where none can be. `made` is what came out before: of the same objects the same comes out
    again."""
    filled = dict(objects)
    findings: list[Finding] = []
    apart: dict[ObjectRef, tuple[str, ...]] = {}
    for service, at, name, file in _stated(objects):
        ref = ObjectRef("Model", service.metadata.namespace, name)
        model = objects.get(ref)
        if type(model) is not Model:
            continue  # reported as a dangling reference
        draft = model.beside(file)
        if draft is None:
            scheme = model.spec.source.partition("://")[0]
            message = (
                f"no file is beside a {scheme}:// source; declare a Model of it, and name that in"
                " draftModelRef"
            )
            findings.append(Finding("Schema", service.ref, f"{at}.draftModel", message))
            continue
        filled[draft.ref] = made.find(draft.ref, (Same(model), file), partial(_same, draft))
        origins[draft.ref] = origins[ref]
        if file in model.spec.files:
            apart[ref] = (*apart.get(ref, ()), file)
    for ref, files in apart.items():
        model = objects[ref]
        if type(model) is Model and not {*files} >= {*model.spec.files}:
            filled[ref] = made.find(ref, (Same(model), files), partial(_without, model, files))
    made.keep(filled)
    return filled, tuple(findings)


def _stated(
    objects: Mapping[ObjectRef, Resource],
) -> Iterator[tuple[InferenceService, str, str, str]]:
    """Each service that names such a file, where it does, the model's name and the file's."""
    for service in objects.values():
        if type(service) is not InferenceService or not service.draft_names:
            continue
        entries = {e.name: f"spec.models[{i}]" for i, e in enumerate(service.spec.models or ())}
        own = {e.name: e.speculative_decoding for e in service.spec.models or ()}
        for name, draft in service.draft_names.items():
            model, slash, file = draft.partition("/")
            if slash and model == name:
                is_own = name in own and own[name].draft_model is not None
                at = entries[name] if is_own else "spec"
                yield service, f"{at}.speculativeDecoding", name, file


def _same(draft: Model) -> Model:
    return draft


def _without(model: Model, drafts: tuple[str, ...]) -> Model:
    """The model's own files: which of several an engine is given would be open."""
    files = tuple(each for each in model.spec.files if each not in drafts)
    return model.model_copy(update={"spec": model.spec.model_copy(update={"files": files})})
