"""Documents of other projects near to ours, which are not read: what to write instead. Pure.

A repository for Flux holds many kinds of others, and those stay silent. Here are only such as say
what ours say, so that their author may expect this program to act on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.foreign.project import Project
from reconciler.foreign_kinds import PROJECTS

_IN_OUR_GROUP = tuple(project for project in PROJECTS if GROUP in project.groups)
_KIN = tuple(project for project in PROJECTS if GROUP not in project.groups)
KIN_MARKS = tuple(project.name.lower().encode() for project in _KIN)  # in the bytes of their files
_BY_GROUP: Mapping[str, Project] = {group: kin for kin in _KIN for group in kin.groups}
_INSTEAD: Mapping[str, str] = {
    kind: text for project in PROJECTS for kind, text in project.instead.items()
}


def is_kin(content: Mapping[Any, Any]) -> bool:
    return _group(content) in _BY_GROUP


def is_read(content: Mapping[Any, Any]) -> bool:
    """Whether it is of a kind, and of a version, that is read all the same."""
    kind, version = content.get("kind"), content.get("apiVersion")
    read = _BY_GROUP[_group(content)].read
    return isinstance(kind, str) and kind in read and str(version).endswith("/v1alpha1")


def not_read(content: Mapping[Any, Any]) -> str:
    """What to say of a document of kin."""
    kind, group = content.get("kind"), _group(content)
    word = kind if isinstance(kind, str) else "document"
    instead = _named(_BY_GROUP[group].instead.get(word), _name(content))
    return f"a {word} of {group} is not read; {instead}"


def foreign_kind(content: Mapping[Any, Any]) -> str | None:
    """What to say of a document of a kind that another project has in our group, and we have
    not."""
    kind = content.get("kind")
    for project in _IN_OUR_GROUP:
        if isinstance(kind, str) and kind in project.instead:
            return f"a {kind} of {project.name} is not read; {project.instead[kind]}"
    return None


def renamed_kind(kind: object, name: object = None) -> str | None:
    """What to write instead of a kind that others have, under our group; None: no one has it."""
    known = isinstance(kind, str) and kind in _INSTEAD and kind not in KINDS
    return f"; {_named(_INSTEAD[str(kind)], name)}" if known else None


def _group(content: Mapping[Any, Any]) -> str:
    version = content.get("apiVersion")
    return version.partition("/")[0] if isinstance(version, str) and "/" in version else ""


def _name(content: Mapping[Any, Any]) -> object:
    metadata = content.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _named(instead: str | None, name: object) -> str:
    other = f"the kinds that are, of {API_VERSION}: {', '.join(KINDS)}"
    return (instead or other).format(name=name if isinstance(name, str) else "NAME")
