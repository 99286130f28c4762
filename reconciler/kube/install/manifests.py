"""All manifests of an installation, in the order of writing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.kube.crd.definitions import crds
from reconciler.kube.install import admission, rbac
from reconciler.kube.install.rbac import LABELS, NAME
from reconciler.kube.objects import SYSTEM_NAMESPACE, Manifest
from reconciler.placement.images import OWN_IMAGE

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime

PORT = 8080  # health, metrics and the webhook
CLUSTER_SCHEME = "cluster://"  # the cluster's own objects are the fleet
SECRETS_AT = "/etc/fleet"  # a folder for each Secret
STATE_AT = "/var/lib/fleet"
_USER = 65532  # an unprivileged uid, not root

# Name -> value: a higher one may evict a lower one from a full node. `normal` is Kubernetes' own
# default, 0, so it needs no class.
PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"critical": 100_000, "high": 10_000, "low": -1_000, "batch": -10_000}
)
CLASS_PREFIX = "fleet-"


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file from a Secret of our namespace: `key` in it is read by `--OPTION FILE`; without a key
    the whole Secret is a folder."""

    option: str
    secret: str
    key: str = ""

    @property
    def folder(self) -> str:
        return f"{SECRETS_AT}/{self.option.removesuffix('-file')}"

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.key}" if self.key else self.folder


@dataclass(frozen=True, slots=True)
class Program:
    """How the reconciler runs in the cluster. `url` is the git URL of the fleet; `extra_arguments`
    are for its command line."""

    url: str
    cluster: str = "default"
    ref: str | None = None
    path: str | None = None
    secrets: tuple[SecretFile, ...] = ()
    extra_arguments: tuple[str, ...] = ()
    image: str = OWN_IMAGE

    @property
    def arguments(self) -> list[str]:
        given = ["-C", self.url]
        given += ["--ref", self.ref] if self.ref else []
        given += ["--path", self.path] if self.path else []
        if not self.url.startswith(CLUSTER_SCHEME):
            given += ["--cluster", self.cluster]
        # of the pod: its Service and the kubelet connect to it
        given += ["--listen", f"0.0.0.0:{PORT}"]
        for each in self.secrets:
            given += [f"--{each.option}", each.path]
        return [*given, *self.extra_arguments]


def installation(
    runtimes: Mapping[str, Runtime], program: Program | None, *, with_admission: bool = True
) -> tuple[Manifest, ...]:
    """Without a program, everything except the Deployment; `with_admission` is for API servers with
    ValidatingAdmissionPolicy (Kubernetes 1.30 and later)."""
    made: list[Manifest] = [*crds(runtimes), namespace(), *rbac.manifests(), rbac.agents_role()]
    made += admission.manifests() if with_admission else ()
    made += priority_classes()
    made += [deployment(program), service()] if program else []
    return tuple(made)


def namespace() -> Manifest:
    made = _object("v1", "Namespace", SYSTEM_NAMESPACE)
    del made["metadata"]["namespace"]
    # The strictest of https://kubernetes.io/docs/concepts/security/pod-security-standards/
    made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return made


def priority_classes() -> tuple[Manifest, ...]:
    """One for each `spec.priority` except normal."""
    return tuple(_priority_class(name, value) for name, value in PRIORITIES.items())


def _priority_class(name: str, value: int) -> Manifest:
    made = _object("scheduling.k8s.io/v1", "PriorityClass", f"{CLASS_PREFIX}{name}")
    del made["metadata"]["namespace"]
    return made | {
        "value": value,
        # A batch service waits for room and evicts nothing.
        "preemptionPolicy": "Never" if name == "batch" else "PreemptLowerPriority",
        "description": f"InferenceServices with priority: {name}",
    }


def deployment(program: Program) -> Manifest:
    """One pod. A new one waits, ready, until the old one releases its Lease; one that cannot start
    (its image, its fleet) leaves the old one running."""
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,  # read access to the Secrets' files
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 30,
        "containers": [_container(program)],
        "volumes": _volumes(program.secrets),
    }
    return _object("apps/v1", "Deployment", NAME) | {
        "spec": {
            "replicas": 1,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": dict(_POD_LABELS)},
            "template": {"metadata": {"labels": dict(_POD_LABELS)}, "spec": pod},
        }
    }


def service() -> Manifest:
    """For a forge's webhook calls, and for metrics."""
    return _object("v1", "Service", NAME) | {
        "spec": {
            "type": "ClusterIP",
            "selector": dict(_POD_LABELS),
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        }
    }


_POD_LABELS = {"app.kubernetes.io/name": NAME}


def _container(program: Program) -> dict[str, Any]:
    return {
        "name": "reconciler",
        "image": program.image,
        "command": ["reconcile"],
        "args": program.arguments,
        "env": [
            {"name": "HOME", "value": STATE_AT},
            {"name": "XDG_CACHE_HOME", "value": f"{STATE_AT}/cache"},
            {"name": "XDG_STATE_HOME", "value": f"{STATE_AT}/state"},
            # glibc keeps memory apart for each thread: 20 MiB less at 5,000 objects.
            {"name": "MALLOC_ARENA_MAX", "value": "2"},
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", every_s=2, failures=60),
        "livenessProbe": _probe("/healthz", every_s=20, failures=3),
        "readinessProbe": _probe("/readyz", every_s=5, failures=2),
        # a leak ends this pod, which restarts, and no other on its node
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "state", "mountPath": STATE_AT},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            *(
                {"name": _volume_name(s), "mountPath": s.folder, "readOnly": True}
                for s in program.secrets
            ),
        ],
    }


def _probe(path: str, *, every_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": every_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _volumes(secrets: Sequence[SecretFile]) -> list[dict[str, Any]]:
    return [
        {"name": "state", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        *(
            {
                "name": _volume_name(each),
                "secret": {"secretName": each.secret, "defaultMode": 0o440},
            }
            for each in secrets
        ),
    ]


def _volume_name(secret: SecretFile) -> str:
    return secret.option.removesuffix("-file")


def _object(api_version: str, kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": dict(LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
