"""Objects of a fleet as people name them on a command line, and what is said where there is none of
that name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef, service_ref
from reconciler.source.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_LISTED = 12


def parse_ref(text: str) -> ObjectRef:
    """`Kind/name` or `Kind/namespace/name`, a kind as kubectl takes it. A service needs no kind:
    `name`, or `namespace/name` as plans and statuses have it. Raises UsageError."""
    from reconciler.api.kinds import KINDS

    parts = text.split("/")
    kinds = _kinds()
    if len(parts) == 1 or (len(parts) == 2 and _is_namespace(parts[0], kinds)):
        parts = ["InferenceService", *parts]
    kind = kinds.get(parts[0].lower())
    if kind is None or len(parts) > 3 or not all(parts):
        raise UsageError(
            f"{text!r} is not a valid REF: write Kind/name, with a kind of {', '.join(KINDS)}"
        )
    namespace = (
        (DEFAULT_NAMESPACE if len(parts) == 2 else parts[1]) if KINDS[kind].namespaced else ""
    )
    return ObjectRef(kind, namespace, parts[-1])


def named_service(text: str) -> ObjectRef:
    """The same where only services are meant. Raises UsageError for another kind."""
    if "/" not in text:
        return service_ref(text)
    ref = parse_ref(text)
    if ref.kind != "InferenceService":
        raise UsageError(f"{ref}: is no service; name one, as NAME or NAMESPACE/NAME")
    return ref


def hint(wrong: str, known: Iterable[str]) -> str:
    """` (did you mean "default/chat"?); there is ...`: of names with their namespaces, or kinds."""
    names = sorted(known)
    own = wrong.rpartition("/")[2]
    elsewhere = [name for name in names if name.rpartition("/")[2] == own]
    meant = f' (did you mean "{elsewhere[0]}"?)' if len(elsewhere) == 1 else None
    more = len(names) - _MOST_LISTED
    listed = ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{meant or did_you_mean(wrong, names)}; there is {listed or 'none'}"


def _kinds() -> Mapping[str, str]:
    from reconciler.api.kinds import KIND_TABLE

    return {
        word: name
        for name, row in KIND_TABLE.items()
        for word in (name.lower(), row.plural, row.short_name)
    }


def _is_namespace(text: str, kinds: Mapping[str, str]) -> bool:
    """Whether a word is no kind: Kubernetes calls no namespace by a name with a capital."""
    return text == text.lower() and text not in kinds
