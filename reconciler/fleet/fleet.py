"""All objects of one revision, by identity, with the places where they are declared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from reconciler.api.fleet import FleetPolicy, FleetSpec
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.problem import Finding

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an object is declared. `line`, from 1, is the document's first line of content;
    `document` counts the documents of the file from 0."""

    path: str
    line: int
    document: int = 0


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A model file inside the repository: its path there, size, and the sha256 of its bytes."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """One revision that passed validation.

    `revision` is `<sha>`, `<sha>+dirty.<hash8>` or `dir:<hash8>`; `commit` is None for a plain
    directory. `files` are the repository's model files by path, as far as a Model names them.
    `held` are objects that the source itself found blocked. For an agent, which also follows
    revisions with errors (reconciler.source.slice), these include objects that could not be read;
    `elsewhere` are those that concern other nodes only, and `incomplete` is why a missing object
    may still be wanted. `defaults`, by their variables, are what this process was told for what the
    fleet leaves open (reconciler.placement.defaults). `written` are documents as they are written,
    of the objects whose documents have fields of LLMKube.
    """

    revision: str
    commit: str | None
    objects: Mapping[ObjectRef, Resource]
    origins: Mapping[ObjectRef, Origin]
    files: Mapping[str, RepositoryFile] = field(default_factory=lambda: MappingProxyType({}))
    held: tuple[Finding, ...] = ()
    elsewhere: frozenset[ObjectRef] = frozenset()
    incomplete: str = ""
    defaults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    written: Mapping[ObjectRef, Mapping[str, Any]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    policy: FleetSpec = field(init=False, repr=False, compare=False)
    """The Fleet document's policy, or the defaults without one. Cached: it is needed for every
    service."""
    _by_kind: dict[type[Resource], tuple[Any, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        declared = self.all(FleetPolicy)
        object.__setattr__(self, "policy", declared[0].spec if declared else FleetSpec())

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Every object of a kind, sorted by namespace and name."""
        if kind not in self._by_kind:
            objects = [o for o in self.objects.values() if type(o) is kind]
            self._by_kind[kind] = tuple(sorted(objects, key=lambda o: o.ref))
        return self._by_kind[kind]

    def get(self, kind: type[R], ref: ObjectRef) -> R | None:
        """The object of that identity, or None."""
        resource = self.objects.get(ref)
        return resource if isinstance(resource, kind) else None
