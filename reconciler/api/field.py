"""What a field of a service is for, stated where the field is, and read from there. Pure.

Each field of a kind that says this carries one `Purpose`, or is a part whose fields do.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class FieldUse(StrEnum):
    """What a change of a field reaches."""

    PROCESS = "process"  # a runtime renders from it: with another value it is another process
    WORKLOAD = "workload"  # the same, and it has a place of its own in a Workload
    POD = "pod"  # pods are made from it, beside what their process is
    SCALE = "scale"  # how many pods there are, and their Service: replaces none
    LIFECYCLE = "lifecycle"  # only what runs the process acts on it: restarts nothing
    ELSEWHERE = "elsewhere"  # decides where or whether it runs, or is measured


PROCESS, WORKLOAD, POD = FieldUse.PROCESS, FieldUse.WORKLOAD, FieldUse.POD
SCALE, LIFECYCLE, ELSEWHERE = FieldUse.SCALE, FieldUse.LIFECYCLE, FieldUse.ELSEWHERE


class Purpose(NamedTuple):
    """The one annotation of a field.

    `default` is the value where neither an entry of models[] nor the service states one: such a
    field is None there. `pods_only`: an agent's node makes nothing of it, and says so.
    `affects_speed`: a measured speed counts for one value of it alone. `noted_unstated`: a
    service's inputs have it even where it is not stated; one that came later is left out there, so
    that older digests stay as they are.
    """

    use: FieldUse
    default: object = None
    pods_only: bool = False
    affects_speed: bool = True
    noted_unstated: bool = True


ONLY_STATED = Purpose(LIFECYCLE, noted_unstated=False)


class DocumentField(NamedTuple):
    """A field by its path below `spec`, such as `rollout.drainTimeout`."""

    path: str
    info: FieldInfo
    purpose: Purpose


def fields_of(part: type[BaseModel], prefix: str = "") -> Iterator[DocumentField]:
    """Every field, in the order of the document; those of a part that states no purpose itself are
    taken apart. Raises TypeError for a field that nobody knows the purpose of."""
    for name, info in part.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        purposes = [each for each in info.metadata if isinstance(each, Purpose)]
        inner = info.annotation
        if len(purposes) == 1:
            yield DocumentField(path, info, purposes[0])
        elif not purposes and isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields_of(inner, f"{path}.")
        else:
            raise TypeError(
                f"{part.__name__}.{name} states {len(purposes)} purposes; annotate it with one"
                " Purpose of reconciler.api.field"
            )
