"""What is to be told about an object, as a Kubernetes Event."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.meta import ObjectRef


@dataclass(frozen=True, slots=True)
class EventNote:
    """One thing that happened to a service. `is_bad` makes it a Warning."""

    ref: ObjectRef
    reason: str
    action: str
    note: str
    is_bad: bool = False
