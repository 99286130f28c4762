"""The files of a command, such as a router's preset, as an immutable ConfigMap. Pure."""

from __future__ import annotations

from reconciler.api.digest import digest
from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata
from reconciler.kube.render.subject import Subject
from reconciler.placement.names import with_suffix

_DIGITS = 10  # of the hash of its content


def config_maps(subject: Subject) -> tuple[Manifest, ...]:
    """One if the command has files. Changed files are another ConfigMap: existing pods keep theirs,
    and a pod's template names the one it reads."""
    name = config_name(subject)
    if name is None:
        return ()
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(subject.placed, name),
            "immutable": True,
            "data": dict(sorted(subject.command.files.items())),
        },
    )


def config_name(subject: Subject) -> str | None:
    """None: the command has no files."""
    files = subject.command.files
    return with_suffix(subject.name, digest(dict(files))[:_DIGITS]) if files else None
