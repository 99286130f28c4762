"""How a pod gets its models: a container that fetches, and one that waits for a Job. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.model import declared_name
from reconciler.fleet.model_file import ModelFile
from reconciler.kube.render.cache import MODELS, mounted_place, ready_path
from reconciler.kube.render.containers import own_program
from reconciler.kube.render.placed import in_repository
from reconciler.kube.render.subject import Subject


def models_first(subject: Subject) -> list[dict[str, Any]]:
    """Wait for the Jobs, or fetch: one container per model, so that each has only its own
    secret."""
    models = distinct_models(subject)
    if subject.fetches_by_job:
        return [wait(subject)] if models else []
    return [fetch(subject, m, f"fetch-{i}" if i else "fetch") for i, m in enumerate(models)]


def distinct_models(subject: Subject) -> tuple[ModelFile, ...]:
    """The models and projectors to fetch, by name; two names for the same bytes are fetched
    once."""
    fetched = (m for m in subject.placed.workload.model_files if not mounted_place(m.source))
    files = sorted(fetched, key=_by_name)
    by_path = {ready_path(m): m for m in files}
    return tuple(by_path.values())


def fetch(subject: Subject, model: ModelFile, name: str = "fetch") -> dict[str, Any]:
    """Fetches one model into the cache and verifies it. Credentials for its source are in this
    container's environment only."""
    container = own_program(subject, "fetch", _arguments(subject, model), name)
    container["volumeMounts"] = [
        {"name": "models", "mountPath": MODELS},
        *container["volumeMounts"],
    ]
    declared = subject.placed.models.get(declared_name(model.name))
    if declared and (secret := declared.spec.source_secret_ref):
        container["envFrom"] = [{"secretRef": {"name": secret.name}}]
    return container


def wait(subject: Subject) -> dict[str, Any]:
    """Ends once every model is complete and verified."""
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
