"""Chat templates that a service names as files of the repository: read, and put in their place.

What runs it has the text, so that a node needs no repository and a cluster no file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar

from reconciler.api.errors import SourceError
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model_settings import ModelSettings
from reconciler.api.problem import Finding
from reconciler.fleet.fleet import Origin
from reconciler.memo import Memo, Same
from reconciler.source.checkout import Checkout

MOST_BYTES = 65_536
S = TypeVar("S", bound=ModelSettings)
ServicesWithTexts = Memo[ObjectRef, InferenceService]
# What training marks, and no engine writes.
_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


def with_templates(
    checkout: Checkout,
    objects: Mapping[ObjectRef, Resource],
    origins: Mapping[ObjectRef, Origin],
    made: ServicesWithTexts,
) -> tuple[dict[ObjectRef, Resource], tuple[Finding, ...]]:
    """The objects, each service with the texts of its templates, and what is wrong with these.
    `made` is what came out before: of the same objects and texts the same comes out again."""
    filled = dict(objects)
    findings: list[Finding] = []
    for ref, thing in objects.items():
        if type(thing) is not InferenceService:
            continue
        texts: dict[str, str] = {}
        for at, stated in _stated(thing):
            text, problem = _read(checkout, stated, posixpath.dirname(origins[ref].path))
            texts[at] = text
            if problem:
                findings.append(Finding("TemplateInvalid", ref, f"{at}.chatTemplate", problem))
        if texts:
            key = (Same(thing), tuple(texts.items()))
            filled[ref] = made.find(ref, key, partial(_filled, thing, texts))
    made.keep(filled)
    return filled, tuple(findings)


def _stated(service: InferenceService) -> Iterator[tuple[str, str]]:
    """Each template that it states, with the part that does."""
    if service.spec.chat_template is not None:
        yield "spec", service.spec.chat_template
    for index, entry in enumerate(service.spec.models or ()):
        if entry.chat_template is not None:
            yield f"spec.models[{index}]", entry.chat_template


def _read(checkout: Checkout, stated: str, folder: str) -> tuple[str, str]:
    """The text, and what is wrong with it."""
    if _is_text(stated):
        return stated, _syntax(stated, "line ")
    try:
        return _text(checkout, stated)
    except SourceError as error:
        return stated, _meant(checkout, stated, folder) or str(error)


def _is_text(stated: str) -> bool:
    """A template without any brace says nothing, and no path has one."""
    return "{" in stated


def _text(checkout: Checkout, path: str) -> tuple[str, str]:
    checkout.model_file(path)  # so that it is looked at again when it changes
    with checkout.open(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        return path, f"{path} is larger than {MOST_BYTES} bytes"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return path, f"{path} is no text in UTF-8"
    if not _is_text(text):
        return path, f"{path} is no template: it has no {{{{ }}}} or {{% %}}"
    return text, _syntax(text, f"{path}:")


def _meant(checkout: Checkout, path: str, folder: str) -> str:
    """What to write where the path was meant to begin at the document."""
    beside = posixpath.normpath(posixpath.join(folder, path))
    try:
        checkout.open(beside).close()
    except SourceError:
        return ""
    return f"{path} is not there: paths begin at the top of the fleet's folder; write {beside}"


def _syntax(text: str, where: str) -> str:
    """Why it is no template; empty if it is one. `where` goes before the number of a line."""
    from jinja2 import Environment, TemplateSyntaxError

    try:
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(_MARKS.sub("", text))  # noqa: S701
    except (TemplateSyntaxError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        why = (
            str(error).splitlines()[0][:200]
            if isinstance(error, TemplateSyntaxError)
            else "too deep"
        )
        return f"{where}{line}: {why}"
    return ""


def _filled(service: InferenceService, texts: Mapping[str, str]) -> InferenceService:
    spec = service.spec
    update: dict[str, object] = {}
    if spec.models is not None:
        entries = enumerate(spec.models)
        update["models"] = tuple(_with(e, texts.get(f"spec.models[{i}]")) for i, e in entries)
    return service.model_copy(
        update={"spec": _with(spec.model_copy(update=update), texts.get("spec"))}
    )


def _with(part: S, text: str | None) -> S:
    return part if text is None else part.model_copy(update={"chat_template": text})
