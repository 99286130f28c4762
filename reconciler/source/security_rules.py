"""Rights that a service may ask for its pods and beside them: those that the Fleet allows. Pure.

GUARDED and FREE together have a row for each field of a service that only pods, or objects beside
them, are rendered from. A test fails for a field without a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.fleet import FleetPolicy, FleetSpec
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import GROUP
from reconciler.api.pod_parts import ProbeOverrides
from reconciler.api.problem import Finding
from reconciler.api.service_parts import Autoscaling
from reconciler.api.traffic import HttpRoute
from reconciler.source.places import field_path

if TYPE_CHECKING:
    from reconciler.source.declared import DeclaredObjects

Refused = Iterable[tuple[tuple[str | int, ...], str]]  # (path below the field, why)
Check = Callable[[Any, FleetSpec, str], Refused]


class GuardedField(NamedTuple):
    """A field that may ask for rights. `allowed_by` are the fields of the Fleet that allow values
    beyond its defaults; none: no Fleet does. `check` is passed the value, the Fleet and the
    service's namespace."""

    attribute: str
    allowed_by: tuple[str, ...]
    check: Check
    rule: str = "SecurityRefused"


def rights_allowed(declared: DeclaredObjects) -> Iterator[Finding]:
    """Each right that the Fleet does not allow."""
    policies = (o.spec for o in declared.objects.values() if type(o) is FleetPolicy)
    fleet = next(policies, FleetSpec.model_construct())
    for service in declared.services:
        yield from _refused(service, fleet)


def _refused(service: InferenceService, fleet: FleetSpec) -> Iterator[Finding]:
    stated = service.spec.model_fields_set
    for name, guard in GUARDED.items():
        value = getattr(service.spec, guard.attribute) if guard.attribute in stated else None
        for below, why in guard.check(value, fleet, service.metadata.namespace) if value else ():
            yield Finding(guard.rule, service.ref, field_path(["spec", name, *below]), why)


def _security(value: Mapping[str, Any], fleet: FleetSpec, _: str) -> Refused:
    for name, part in value.items():
        for below, why in _SECURITY.get(name, _never)(part, fleet):
            yield (name, *below), why


def _free(_: object, __: FleetSpec) -> Refused:
    return ()


def _never(_: object, __: FleetSpec) -> Refused:
    yield (), "no service may ask for it; remove it"


def _only_false(value: object, _: FleetSpec) -> Refused:
    if value is not False:
        yield (), "no engine may gain rights; remove it, or write false"


def _root(value: object, fleet: FleetSpec) -> Refused:
    if value is not True and not fleet.pod_security.writable_root:
        yield (
            (),
            "the Fleet's podSecurity has no writableRoot; mount an emptyDir where it writes,"
            " or set it there if it may be",
        )


def _capabilities(value: Mapping[str, Any], fleet: FleetSpec) -> Refused:
    for i, name in enumerate(value.get("add", ())):
        if name not in fleet.pod_security.capabilities:
            yield ("add", i), _not_listed(name, "podSecurity.capabilities")


def _seccomp(value: Mapping[str, Any], fleet: FleetSpec) -> Refused:
    if value["type"] not in fleet.pod_security.seccomp_profiles:
        yield ("type",), _not_listed(value["type"], "podSecurity.seccompProfiles")


_SECURITY: Mapping[str, Callable[[Any, FleetSpec], Refused]] = MappingProxyType(
    {
        "allowPrivilegeEscalation": _only_false,
        "capabilities": _capabilities,
        "fsGroup": _free,
        "fsGroupChangePolicy": _free,
        "privileged": _only_false,
        "readOnlyRootFilesystem": _root,
        "runAsGroup": _free,
        "runAsNonRoot": _free,
        "runAsUser": _free,
        "seccompProfile": _seccomp,
        "supplementalGroups": _free,
    }
)


def _annotations(value: Mapping[str, str], fleet: FleetSpec, _: str) -> Refused:
    """Controllers, runtimes and CNIs grant rights by annotations, which nobody can list in full."""
    for key in value:
        domain, has_domain, _name = key.partition("/")
        if has_domain and not {key, domain} & {*fleet.pod_annotations}:
            yield (key,), _not_listed(key, "podAnnotations", f" (or all of {domain})")


def _labels(value: Mapping[str, str], _: FleetSpec, __: str) -> Refused:
    for key in value:
        if key.startswith(f"{GROUP}/"):
            yield (key,), "labels of this group are the reconciler's; remove it"


_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def _tolerations(value: Iterable[Mapping[str, Any]], fleet: FleetSpec, _: str) -> Refused:
    for i, toleration in enumerate(value):
        key = toleration.get("key") or ""
        if fleet.pod_security.control_plane or (key and key not in _CONTROL_PLANE):
            continue
        why = f"it tolerates the taint {_CONTROL_PLANE[0]}"
        yield (i,), f"{why}; name the key of another taint, or set podSecurity.controlPlane{_THERE}"


def _priority(value: str, fleet: FleetSpec, _: str) -> Refused:
    if value not in fleet.priority_classes and value not in _OWN_CLASSES:
        yield (), f"{_not_listed(value, 'priorityClasses')}, or write priority in its place"


_OWN_CLASSES = frozenset(f"fleet-{name}" for name in ("critical", "high", "low", "batch"))


def _runtime_class(value: str, fleet: FleetSpec, _: str) -> Refused:
    if value not in fleet.runtime_classes:
        yield (), _not_listed(value, "runtimeClasses")


def _volumes(value: Iterable[Mapping[str, Any]], fleet: FleetSpec, _: str) -> Refused:
    for i, volume in enumerate(value):
        # A volume without a kind is an emptyDir.
        for kind in [kind for kind in volume if kind != "name"] or ["emptyDir"]:
            if kind == "hostPath":
                why = (
                    "no folder of a node is mounted but a pool's cache: see hostCaches of the Fleet"
                )
                yield (i, kind), why
            elif kind not in fleet.pod_volumes:
                yield (i, kind), _not_listed(kind, "podVolumes")


def _probes(value: ProbeOverrides, _: FleetSpec, __: str) -> Refused:
    """The kubelet sends what a probe asks, from the network of its node."""
    for name in ("startup", "liveness", "readiness"):
        probe = getattr(value, name) or {}
        for kind in ("httpGet", "tcpSocket"):
            part = probe.get(kind)
            if isinstance(part, dict) and part.get("host"):
                yield (name, kind, "host"), "a probe asks its own pod, and no other host; remove it"


def _keda(value: Autoscaling, fleet: FleetSpec, _: str) -> Refused:
    """KEDA reads its Secrets, and sends them to the addresses of a trigger."""
    for i, trigger in enumerate(value.keda.triggers if value.keda else ()):
        at = ("keda", "triggers", i)
        if trigger.get("authenticationRef") is not None:
            name = _authentication(trigger["authenticationRef"])
            if name not in fleet.keda.authentications:
                where = _not_listed(name, "keda.authentications")
                yield (*at, "authenticationRef"), where
        for key, text in _texts(trigger.get("metadata")):
            if _ADDRESS.search(key) or _URL.match(text):
                for address in text.split(","):
                    if not _is_below(address.strip(), fleet.keda.addresses):
                        shown = address.strip() or "an empty address"
                        yield (*at, "metadata", key), _not_listed(shown, "keda.addresses")


# Names under which KEDA's scalers are told where to connect, also by a variable of the container.
_ADDRESS = re.compile(
    r"addr|url|uri$|host|endpoint|broker|server|connection|dsn|template|cloud_?id", re.IGNORECASE
)
_URL = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def _texts(metadata: object) -> Iterator[tuple[str, str]]:
    if isinstance(metadata, dict):
        yield from ((str(key), str(value)) for key, value in metadata.items())


def _authentication(ref: object) -> str:
    """`TriggerAuthentication/NAME`, as KEDA reads it."""
    part = ref if isinstance(ref, dict) else {}
    return f"{part.get('kind') or 'TriggerAuthentication'}/{part.get('name') or ''}"


def _is_below(address: str, allowed: Iterable[str]) -> bool:
    """True if it is one of these, or a path or query behind one."""
    bases = (base.rstrip("/") for base in allowed)
    return any(address == base or address.startswith((f"{base}/", f"{base}?")) for base in bases)


def _route(value: HttpRoute, fleet: FleetSpec, namespace: str) -> Refused:
    """The author of a Gateway decides who may attach, and never who may have which host there."""
    for i, parent in enumerate(value.parent_refs):
        whose = parent.get("namespace") or namespace
        if whose == namespace:
            continue
        gateway = f"{whose}/{parent.get('name')}"
        hosts = fleet.gateways.get(gateway)
        if hosts is None:
            yield ("parentRefs", i, "namespace"), _not_listed(gateway, "gateways")
            continue
        for j, host in enumerate(value.hostnames):
            if not any(_has_host(entry, host) for entry in hosts):
                yield ("hostnames", j), _not_listed(host, f'gateways["{gateway}"]')
        if not value.hostnames and "*" not in hosts:
            any_host = f"without hostnames it has every host of {gateway}"
            yield ("parentRefs", i, "name"), f'{any_host}; write hostnames, or list "*"{_THERE}'


def _has_host(entry: str, host: str) -> bool:
    """`*.example.com` has all names below, and itself."""
    if entry == "*" or entry == host:
        return True
    return entry.startswith("*.") and host.endswith(entry[1:])


_THERE = " in the Fleet if it may be"


def _not_listed(name: str, where: str, more: str = "") -> str:
    return f"{name} is not in the Fleet's {where}; add it{more} there if it may be"


GUARDED: Mapping[str, GuardedField] = MappingProxyType(
    {
        "autoscaling": GuardedField(
            "autoscaling", ("keda.addresses", "keda.authentications"), _keda
        ),
        "extraVolumes": GuardedField("extra_volumes", ("podVolumes",), _volumes, "VolumeRefused"),
        "httpRoute": GuardedField("http_route", ("gateways",), _route),
        "podAnnotations": GuardedField("pod_annotations", ("podAnnotations",), _annotations),
        "podLabels": GuardedField("pod_labels", (), _labels),
        "podSecurityContext": GuardedField(
            "pod_security_context", ("podSecurity.seccompProfiles",), _security
        ),
        "priorityClassName": GuardedField("priority_class_name", ("priorityClasses",), _priority),
        "probeOverrides": GuardedField("probe_overrides", (), _probes),
        "runtimeClassName": GuardedField("runtime_class_name", ("runtimeClasses",), _runtime_class),
        "securityContext": GuardedField(
            "security_context",
            (
                "podSecurity.capabilities",
                "podSecurity.seccompProfiles",
                "podSecurity.writableRoot",
            ),
            _security,
        ),
        "tolerations": GuardedField("tolerations", ("podSecurity.controlPlane",), _tolerations),
    }
)
_OF_ITS_NAMESPACE = "an object of the service's own namespace, which its author may use"
_FEWER_NODES = "it only takes nodes away"
_QUOTA = "a ResourceQuota of the namespace limits it"
FREE: Mapping[str, str] = MappingProxyType(
    {
        "affinity": _FEWER_NODES,
        "command": "a program of the image, with the rights of the container",
        "endpoint.nodePort": _QUOTA,
        "endpoint.type": _QUOTA,
        "extraVolumeMounts": "volumes of extraVolumes, which are guarded",
        "image": "who may write a service may run an image",
        "imagePullSecrets": _OF_ITS_NAMESPACE,
        "inferencePool": _OF_ITS_NAMESPACE,
        "modelCache.claimName": _OF_ITS_NAMESPACE,
        "modelCache.persistence": "it chooses between the pool's cache and none",
        "nodeSelector": _FEWER_NODES,
        "podDisruptionBudget": "it concerns evictions of the service's own pods",
        "priority": "one of the classes that the installation made for services",
        "replicas": _QUOTA,
        "resourceClaims": _OF_ITS_NAMESPACE,
        "resources.limits": _QUOTA,
        "resources.requests": _QUOTA,
        "topologySpreadConstraints": _FEWER_NODES,
    }
)
"""Fields that anybody may set, with the reason."""
