"""How a pod gets its models: a container that fetches, and one that waits for a Job. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.kube.render.cache import MODELS, ready_path
from reconciler.kube.render.containers import own_program
from reconciler.kube.render.placed import in_repository
from reconciler.kube.render.subject import Subject
from reconciler.workload import ModelFile


def distinct_models(subject: Subject) -> tuple[ModelFile, ...]:
    """The models to bring, by name; two names of the same bytes are brought once."""
    by_path = {ready_path(m): m for m in sorted(subject.placed.workload.models, key=_by_name)}
    return tuple(by_path.values())


def fetch(subject: Subject, model: ModelFile, name: str = "fetch") -> dict[str, Any]:
    """Brings one model into the cache, verified. Credentials for its source are in this container's
    environment and nowhere else."""
    container = own_program(subject, "fetch", _arguments(subject, model), name)
    container["volumeMounts"] = [
        {"name": "models", "mountPath": MODELS},
        *container["volumeMounts"],
    ]
    declared = subject.placed.models.get(model.name)
    if declared and (secret := declared.spec.source_secret_ref):
        container["envFrom"] = [{"secretRef": {"name": secret.name}}]
    return container


def wait(subject: Subject) -> dict[str, Any]:
    """Ends once every model is there, whole and verified."""
    paths = sorted(ready_path(model) for model in distinct_models(subject))
    args = ["--store", MODELS, *(word for path in paths for word in ("--ready", path))]
    container = own_program(subject, "wait", args)
    container["volumeMounts"] = [
        {"name": "models", "mountPath": MODELS, "readOnly": True},
        *container["volumeMounts"],
    ]
    return container


def _arguments(subject: Subject, model: ModelFile) -> list[str]:
    placed = subject.placed
    args = ["--store", MODELS, "--model", model.name, f"--source={model.source}"]
    args += ["--format", model.format]
    if model.sha256 is not None:
        args += ["--sha256", model.sha256]
    args += [f"--file={pattern}" for pattern in model.files]  # one may begin with a dash
    if in_repository(model.source) and (source := placed.repository):
        args += ["--git-url", source.url]
        if commit := source.commits.get(model.source):
            args += ["--git-revision", commit]
    if placed.policy.allowed_hosts is not None:
        args += ["--allowed-hosts", ",".join(placed.policy.allowed_hosts)]
    for host, url in sorted(placed.policy.mirrors.items()):
        args += ["--mirror", f"{host}={url}"]
    return args


def _by_name(model: ModelFile) -> str:
    return model.name
