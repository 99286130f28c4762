"""One document -> the objects that it declares, or its mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.kinds import KINDS
from reconciler.api.meta import Resource
from reconciler.api.problem import RULES, Severity
from reconciler.flexinfer import translate as flexinfer
from reconciler.foreign.remark import Remark
from reconciler.foreign.rows import Translated
from reconciler.llmkube.translate import translated
from reconciler.source.backends import formats
from reconciler.source.ours import Document
from reconciler.source.places import field_path, is_within
from reconciler.source.validators import KindValidator, validator

if TYPE_CHECKING:
    from reconciler.source.mistakes import Mistake


class Derived(NamedTuple):
    """What a document of another project is to us: objects, each with the fields of its author that
    say its own, what is to be said of these, or else what is wrong with it."""

    objects: tuple[tuple[Resource, Mapping[str, str]], ...] = ()
    remarks: tuple[Remark, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


def derived_of(document: Document) -> Derived:
    """The objects that FlexInfer's ModelDeployment is."""
    check, content = validator(document.kind), document.content
    if not check.is_valid(content):
        from reconciler.source.mistakes import explain

        return Derived(mistakes=explain(check, content))
    made = flexinfer.translated(content, formats())
    if mistakes := _errors(made.remarks):
        return Derived(mistakes=mistakes)
    objects: list[tuple[Resource, Mapping[str, str]]] = []
    for part in made.parts:
        kind = part.content["kind"]
        mistakes = _refused(validator(kind), part.content, part.written)
        thing = mistakes or _object(kind, part.content)
        if not isinstance(thing, Resource):
            return Derived(mistakes=thing)
        objects.append((thing, part.written))
    return Derived(tuple(objects), made.remarks)


class Made(NamedTuple):
    """The object that a document declares, or the document's mistakes. `remarks` are what there is
    to say of fields that are LLMKube's, and `names` those of its fields that say ours; both None
    where it has none."""

    made: Resource | tuple[Mistake, ...]
    remarks: tuple[Remark, ...] | None = None
    names: Mapping[str, str] | None = None


def made_of(document: Document) -> Made:
    """The one object of a document of our kinds."""
    check, content = validator(document.kind), document.content
    if not check.is_valid(content):
        from reconciler.source.mistakes import explain

        return Made(explain(check, content))
    ours = translated(document.kind, content)
    if ours is None:
        return Made(_object(document.kind, content))
    if mistakes := _wrong(check, ours):
        return Made(mistakes)
    return Made(_object(document.kind, ours.content), ours.remarks, ours.written)


def _wrong(check: KindValidator, ours: Translated) -> tuple[Mistake, ...]:
    """What cannot be said in our fields, under the field that says it."""
    return (*_errors(ours.remarks), *_refused(check, ours.content, ours.written))


def _errors(remarks: tuple[Remark, ...]) -> tuple[Mistake, ...]:
    wrong = [each for each in remarks if RULES[each.rule].severity is Severity.ERROR]
    if not wrong:
        return ()
    from reconciler.source.mistakes import Mistake

    return tuple(Mistake(*each) for each in wrong)


def _refused(
    check: KindValidator, content: dict[str, Any], written: Mapping[str, str]
) -> tuple[Mistake, ...]:
    """What our schema refuses of a document that was translated, as its author wrote it."""
    if check.is_valid(content):
        return ()
    from reconciler.source.mistakes import explain

    mistakes = []
    for mistake in explain(check, content):
        field = next((own for own in written if is_within(mistake.field, own)), None)
        mistakes.append(mistake._replace(field=written[field]) if field else mistake)
    return tuple(mistakes)


def _object(kind: str, content: Mapping[str, Any]) -> Resource | tuple[Mistake, ...]:
    from pydantic import ValidationError

    try:
        return KINDS[kind].model_validate(content)
    # the schema is stricter, so only what it cannot express gets here
    except ValidationError as error:
        return tuple(_mistakes(error))


def _mistakes(error: Any) -> Iterator[Mistake]:  # noqa: ANN401  # pydantic is imported late
    from reconciler.source.mistakes import Mistake

    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        yield Mistake("Schema", field_path(detail["loc"]), detail["msg"])
