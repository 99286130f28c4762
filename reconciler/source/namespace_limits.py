"""Limits on the objects of a cluster that are read as a fleet, counted for each namespace. Pure.

The authors of two namespaces need not know each other. So a namespace over its limit is held alone:
none of its objects is parsed, and the objects of all other namespaces are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reconciler.source.checkout import ObjectFile

# An API server refuses a Deployment with more than 256 KiB of annotations, and the fields of its
# service are one of them.
MAX_OBJECT_BYTES = 2**18


class NamespaceLimits(NamedTuple):
    """The most objects of one namespace, and the most bytes of their JSON."""

    objects: int = 50_000  # 10 s, and 0.6 GB
    size_bytes: int = 2**25


LIMITS = NamespaceLimits()


def too_large(file: ObjectFile) -> str:
    """Return the problem of an object that is too large; empty if it is not."""
    if file.size_bytes <= MAX_OBJECT_BYTES:
        return ""
    spec = file.content().get("spec")
    sizes = {name: len(str(value)) for name, value in spec.items()} if type(spec) is dict else {}
    longest = max(sizes, key=lambda name: sizes[name], default="its longest field")
    return (
        f"an object of {_kib(file.size_bytes)}, and {_kib(MAX_OBJECT_BYTES)} are the most;"
        f" shorten {longest}"
    )


def namespaces_over(
    files: Iterable[ObjectFile], limits: NamespaceLimits = LIMITS
) -> Mapping[str, str]:
    """Return the problem of each namespace that is over its limit."""
    objects, sizes = Counter[str](), Counter[str]()
    for file in files:
        objects[file.ref.namespace] += 1
        sizes[file.ref.namespace] += file.size_bytes
    over = (n for n in objects if objects[n] > limits.objects or sizes[n] > limits.size_bytes)
    return {name: _problem(name, objects[name], sizes[name], limits) for name in over if name}


def _problem(namespace: str, objects: int, size_bytes: int, limits: NamespaceLimits) -> str:
    """The numbers are rounded: otherwise each new object would change the message of all."""
    if size_bytes > limits.size_bytes:
        size, most = _mib(size_bytes), _mib(limits.size_bytes)
    else:
        size, most = f"about {-(-objects // 1000)},000", f"{limits.objects:,}"
    return (
        f"namespace {namespace} has {size} of fleet objects, and {most} is the most: its services"
        " stay as they run; delete objects there, or move some to another namespace"
    )


def _kib(count: int) -> str:
    return f"{-(-count // 2**10):,} KiB"


def _mib(count: int) -> str:
    return f"{-(-count // 2**20):,} MiB"
