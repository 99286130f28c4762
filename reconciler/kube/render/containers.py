"""The containers: the engine, and our own programs beside it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from posixpath import normpath
from typing import Any

from reconciler.kube.render.cache import (
    MODELS,
    mounted_by,
    mounted_place,
    ready_folder,
    ready_path,
)
from reconciler.kube.render.config import config_name
from reconciler.kube.render.probes import COMPANION_PORT, probes
from reconciler.kube.render.resources import resources
from reconciler.kube.render.service import PORT_NAME
from reconciler.kube.render.subject import WORKLOAD, Subject
from reconciler.models.ready import STORED
from reconciler.runtimes import RUNTIMES

ENGINE, COMPANION = "engine", "companion"

_LOCKED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
# With what the API server would add: the field is one value, and would else differ for ever.
_NODE_NAME = {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
NODE = {"name": "FLEET_NODE", "valueFrom": {"fieldRef": _NODE_NAME}}
_MODELS = {"name": "models", "mountPath": MODELS, "readOnly": True}
_TMP = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a volume of the pod's own


def engine(subject: Subject) -> dict[str, Any]:
    """The runtime's command as the container of a pod."""
    # Libraries look up a home and a user name, and an unknown uid has neither.
    env = {"HOME": WORKLOAD, "USER": "fleet", **subject.command.env}
    return {
        "name": ENGINE,
        "image": subject.image,
        **_started(subject),
        "env": variables(env),
        "ports": [{"name": PORT_NAME, "containerPort": subject.container_port, "protocol": "TCP"}],
        **_if_any("resources", resources(subject)),
        **probes(subject),
        "securityContext": _rights(subject),
        "volumeMounts": _mounts(subject),
    }


def _started(subject: Subject) -> dict[str, Any]:
    """The program and its arguments. What is left out is the image's own."""
    command, stated = subject.command, subject.placed.service.spec.command
    if command.in_image:
        return _if_any("command", list(stated)) | _if_any("args", list(command.argv))
    return {
        "command": [escaped(word) for word in stated or command.argv[:1]],
        "args": [escaped(word) for word in command.argv[1:]],
        "workingDir": WORKLOAD,
    }


def _rights(subject: Subject) -> dict[str, Any]:
    """None but those that it asks for: what it adds is added to no capability at all."""
    stated = subject.placed.service.spec.security_context
    added = stated.get("capabilities", {}).get("add")
    return {
        **_LOCKED,
        **stated,
        "capabilities": {**_LOCKED["capabilities"], **({"add": added} if added else {})},
    }


def engine_alone(subject: Subject) -> dict[str, Any]:
    """The same without a companion, beside a container after whose end the pod is over: an init
    container that keeps running. What comes after it begins once it has loaded its model."""
    served = ("livenessProbe", "readinessProbe", "lifecycle")
    kept = {name: value for name, value in engine(subject).items() if name not in served}
    return kept | {"restartPolicy": "Always"}


def companion(subject: Subject) -> dict[str, Any]:
    """Reports when the engine is ready, and drains it. An init container that keeps running: it
    starts before the engine, and ends after it. It reads what it took to bring the models."""
    workload = subject.placed.workload
    args = [
        *("--runtime", workload.runtime),
        *("--port", str(subject.container_port)),
        *_probed(subject),
        *("--listen", str(COMPANION_PORT)),
        *("--drain-timeout", f"{workload.drain_timeout_s:g}s"),
        *(word for model in workload.models for word in ("--name", model.name)),
        *(word for name in _preloads(subject) for word in ("--preload", name)),
        *("--store", MODELS),
        *(
            f"--ready={model.name}={ready_path(model)}"
            for model in workload.models
            if not mounted_place(model.source)
        ),
    ]
    own = own_program(subject, COMPANION, args)
    return own | {
        "volumeMounts": [_MODELS, *own["volumeMounts"]],
        "env": [*own["env"], NODE],
        "restartPolicy": "Always",
        "ports": [{"name": "companion", "containerPort": COMPANION_PORT, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": COMPANION_PORT},
            "periodSeconds": 15,
            "timeoutSeconds": 5,
            "failureThreshold": 4,
        },
    }


def _probed(subject: Subject) -> tuple[str, ...]:
    """The path to ask, where no runtime knows it."""
    return ("--probe-path", subject.command.probe.path) if subject.command.in_image else ()


def _preloads(subject: Subject) -> tuple[str, ...]:
    """The models that a router should keep loaded."""
    workload = subject.placed.workload
    many = RUNTIMES[workload.runtime].many
    return many.preloads(workload.inputs)[0] if many else ()


def own_program(
    subject: Subject, program: str, args: list[str], name: str | None = None
) -> dict[str, Any]:
    """A container of our own image, without volumes except its /tmp."""
    return {
        "name": name or program,
        "image": subject.own_image,
        "command": ["fleet-agent", "pod", program],
        "args": [escaped(word) for word in args],
        "env": variables({"HOME": _TMP["mountPath"]}),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": _LOCKED,
        "volumeMounts": [_TMP],
    }


def variables(env: Mapping[str, str]) -> list[dict[str, str]]:
    """The API server leaves out an empty value."""
    return [
        {"name": name, **({"value": escaped(value)} if value else {})}
        for name, value in sorted(env.items())
    ]


def escaped(word: str) -> str:
    """Escapes `$(NAME)`, which Kubernetes would replace by variables."""
    return word.replace("$(", "$$(") if "$(" in word else word


def every_pod(subject: Subject) -> dict[str, Any]:
    """The settings of all our pods: non-root, and a group that may write to its volumes."""
    secrets = [{"name": s.name} for s in subject.placed.service.spec.image_pull_secrets]
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        "automountServiceAccountToken": False,
        # The names of other Services would be in the environment, and change with them.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
            **subject.placed.service.spec.pod_security_context,
        },
    }


def _mounts(subject: Subject) -> list[dict[str, Any]]:
    """Models and files are read-only; what a command links to is mounted under its name."""
    command = subject.command
    mounts: list[dict[str, Any]] = [
        _MODELS,
        {"name": "workload", "mountPath": WORKLOAD},
        _TMP,
        *(
            {"name": place.volume, "mountPath": place.mounted, "readOnly": True}
            for place in mounted_by(subject.placed.workload.model_files)
        ),
    ]
    if config_name(subject):
        mounts += [
            {
                "name": "files",
                "mountPath": f"{WORKLOAD}/{name}",
                "subPath": name,
                "readOnly": True,
            }
            for name in sorted(command.files)
        ]
    by_path = {
        f"{MODELS}/{ready_folder(m)}": ready_folder(m) for m in subject.placed.workload.models
    }
    linked = {n: by_path[to] for n, to in sorted(command.links.items()) if to in by_path}
    mounts += [_of_models(f"{WORKLOAD}/{name}", folder) for name, folder in linked.items()]
    mounts += _links_to_mounted(subject)
    # the entries of such a folder are links out of it, `../../sha256/...`
    stores = {normpath(f"{WORKLOAD}/{name}/../../{STORED}") for name in linked}
    mounts += [_of_models(path, STORED) for path in sorted(stores)]
    if subject.placed.workload.devices > 1:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a volume of its own
    stated = subject.placed.service.spec.extra_volume_mounts
    paths = {normpath(each["mountPath"]) for each in stated}
    return [*(each for each in mounts if each["mountPath"] not in paths), *stated]


def _links_to_mounted(subject: Subject) -> list[dict[str, Any]]:
    """A folder of a claim or image at the name by which a command knows its model."""
    places = {ready_path(m): mounted_place(m.source) for m in subject.placed.workload.models}
    return [
        {
            "name": place.volume,
            "mountPath": f"{WORKLOAD}/{name}",
            "subPath": place.path.removesuffix("/"),
            "readOnly": True,
        }
        for name, to in sorted(subject.command.links.items())
        if (place := places.get(to))
    ]


def _of_models(path: str, folder: str) -> dict[str, Any]:
    """A folder of the models' volume at another path."""
    return {"name": "models", "mountPath": path, "subPath": folder, "readOnly": True}


def _if_any(name: str, values: Collection[Any]) -> dict[str, Any]:
    return {name: values} if values else {}
