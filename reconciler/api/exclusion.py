"""The words for fields that exclude each other: said by `reconcile validate` and by CRDs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

NODE_IS_BOTH = "agent and kubernetes exclude each other; remove one of them"
NODE_IS_NEITHER = "needs agent or kubernetes; write agent: {} for a machine that runs fleet-agent"

_NAMES = {"models": "models[]", "modelRef": "modelRef"}


def models_fields(*, serves_many: bool) -> tuple[str, str]:
    """(the field that such a runtime needs, the one that it forbids)."""
    return ("models", "modelRef") if serves_many else ("modelRef", "models")


def exclusion_texts(
    runtime: str | None, *, serves_many: bool, has_right: bool, has_wrong: bool, many: Iterable[str]
) -> str | None:
    """What is wrong with modelRef and models[] of a service; None: nothing. `many` names the
    runtimes that serve many, to be offered to one that names none."""
    right, wrong = models_fields(serves_many=serves_many)
    todo = ([] if has_right else [f"write {_NAMES[right]}"]) + (
        [f"remove {_NAMES[wrong]}"] if has_wrong else []
    )
    if not todo:
        return None
    subject = f"runtime {runtime}" if runtime else "a service without a runtime"
    serves = "serves many models" if serves_many else "serves one model"
    offered = ", ".join(many) if runtime is None and has_wrong else ""
    hint = f", or name a runtime that serves many ({offered})" if offered else ""
    return f"{subject} {serves}: {' and '.join(todo)}{hint}"


def no_such_field(known: Iterable[str]) -> str:
    """A field that is not among those known here, and near to none of them."""
    names = sorted(known)
    if not names:
        return "no such field; remove it"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"no such field; remove it (known: {shown})"
