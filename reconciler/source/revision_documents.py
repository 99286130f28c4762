"""What the files of one revision declare, before it is checked against each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import GROUP, ObjectRef, Resource
from reconciler.api.problem import Counts, Finding, Problem
from reconciler.fleet.fleet import Origin
from reconciler.llmkube.pools import KIND
from reconciler.source.files import File, Item, Located, RefusedDocument, problem_at
from reconciler.source.places import Place
from reconciler.source.pools import pool_ref


@dataclass(frozen=True, slots=True)
class RevisionDocuments:
    """`stated` are the objects, `origins` where each is declared, `twice` those that are declared
    again, `refused` the documents that are not objects. `known` exist, or were in files that cannot
    be read now."""

    files: tuple[File, ...]
    stated: dict[ObjectRef, Resource]
    origins: dict[ObjectRef, Origin]
    twice: tuple[Item, ...]
    refused: tuple[RefusedDocument, ...]
    known: frozenset[ObjectRef]
    lost_headers: tuple[Problem, ...]

    @classmethod
    def of(
        cls,
        files: Collection[File],
        held_paths: Collection[str],
        lost: Mapping[str, tuple[ObjectRef, ...]],
    ) -> RevisionDocuments:
        """`held_paths` had documents before; `lost` are the objects in files that cannot be read
        now."""
        stated: dict[ObjectRef, Resource] = {}
        origins: dict[ObjectRef, Origin] = {}
        twice: list[Item] = []
        for item in (item for file in files for item in file.items):
            if origins.setdefault(item.ref, item.origin) is item.origin:
                stated[item.ref] = item.resource
            else:
                twice.append(item)
        refused = tuple(refused for file in files for refused in file.refused)
        lost_headers = tuple(_lost_headers(files, held_paths))
        problems = (*(p for file in files for p in file.all_problems), *lost_headers)
        unread = {problem.path for problem in problems if problem.ref is None}
        there = {document.ref for document in refused if document.ref}
        known = frozenset(there.union(*(lost.get(path, ()) for path in unread)))
        return cls(tuple(files), stated, origins, tuple(twice), refused, known, lost_headers)

    def problems(self, located: Located) -> Iterator[Problem]:
        """Mistakes of files and documents by themselves, and objects that are declared twice."""
        for file in self.files:
            yield from file.all_problems
        yield from self.lost_headers
        for item in self.twice:
            first, place = self.origins[item.ref], located.find(item.origin, "metadata.name")
            message = f"{item.ref} is declared at {first.path}:{first.line} too; remove one of them"
            path, rule = item.origin.path, "DuplicateObject"
            yield problem_at(path, place, rule, "metadata.name", message, item.ref)

    def findings(self) -> Iterator[Finding]:
        """Those of each object alone, except of a second one with the same name."""
        for item in self.items():
            yield from item.findings

    def written(self) -> dict[ObjectRef, Mapping[str, Any]]:
        """Documents that name fields otherwise than we do, as they are written."""
        return {item.ref: item.written for item in self.items() if item.written is not None}

    def names(self) -> dict[ObjectRef, Mapping[str, str]]:
        """The fields of other projects that say those of an object."""
        return {item.ref: item.names for item in self.items() if item.names is not None}

    def counts(self) -> Counts:
        return Counts(
            sum(bool(file.count or file.others) for file in self.files),
            sum(file.count for file in self.files),
            sum(file.others for file in self.files),
        )

    def refs_by_path(self) -> dict[str, tuple[ObjectRef, ...]]:
        """The objects in each file that has documents of ours."""
        return {file.path: _refs(file) for file in self.files if file.count}

    def items(self) -> Iterator[Item]:
        items = (item for file in self.files for item in file.items)
        return (item for item in items if self.origins[item.ref] is item.origin)


def _refs(file: File) -> tuple[ObjectRef, ...]:
    there = [item.ref for item in file.items]
    pools = (pool_ref(theirs) for theirs in file.llmkube if theirs.ref.kind == KIND)
    return (*there, *pools, *(refused.ref for refused in file.refused if refused.ref))


def _lost_headers(files: Collection[File], held_paths: Collection[str]) -> Iterator[Problem]:
    for file in files:
        if file.path in held_paths and not file.count:
            message = (
                "contained documents of the fleet in the last applied revision and contains none"
                f" now; put back its apiVersion ({GROUP}/...), or delete the file if that is meant"
            )
            yield problem_at(file.path, Place(1, 1), "HeaderLost", "", message)
