"""The other projects whose documents are read: a row each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.api.meta import GROUP
from reconciler.flexinfer.project import FLEXINFER
from reconciler.foreign.project import Project
from reconciler.llmkube.project import LLMKUBE

PROJECTS: tuple[Project, ...] = (LLMKUBE, FLEXINFER)
READ: Mapping[str, Project] = MappingProxyType(
    {kind: project for project in PROJECTS for kind in project.read}
)  # kinds that ours do not have, each with whose it is
DERIVED = frozenset(FLEXINFER.read)  # each document of these is several of ours
IN_OUR_GROUP = frozenset(kind for kind, project in READ.items() if GROUP in project.groups)


def not_read(kind: str) -> str | None:
    """What to say of a kind that another project has, and that is not read; None: none has it."""
    for project in PROJECTS:
        if kind in project.instead:
            instead = project.instead[kind].format(name="NAME")
            return f"a {kind} of {project.name} is not read; {instead}"
    return None
