"""Which rights a service may ask for its pods: those that the Fleet's podSecurity allows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reconciler.api.fleet import FleetPolicy, FleetSpec, PodRights
from reconciler.api.problem import Finding

if TYPE_CHECKING:
    from reconciler.source.declared import DeclaredObjects

Refused = Iterable[tuple[str, str]]  # (path below the field, why)


def rights_allowed(declared: DeclaredObjects) -> Iterator[Finding]:
    """Each right that the Fleet does not allow."""
    policies = (o.spec for o in declared.objects.values() if type(o) is FleetPolicy)
    allowed = next(policies, FleetSpec.model_construct()).pod_security
    for service in declared.services:
        stated = (
            ("spec.podSecurityContext", service.spec.pod_security_context),
            ("spec.securityContext", service.spec.security_context),
        )
        for at, part in stated:
            for name, value in part.items():
                for below, why in _CHECKS.get(name, _never)(value, allowed):
                    yield Finding("SecurityRefused", service.ref, f"{at}.{name}{below}", why)


def _free(_: object, __: PodRights) -> Refused:
    return ()


def _never(_: object, __: PodRights) -> Refused:
    yield "", "no service may ask for it; remove it"


def _only_false(value: object, _: PodRights) -> Refused:
    if value is not False:
        yield "", "no engine may gain rights; remove it, or write false"


def _root(value: object, allowed: PodRights) -> Refused:
    if value is not True and not allowed.writable_root:
        yield (
            "",
            "the Fleet's podSecurity has no writableRoot; mount an emptyDir where it writes,"
            " or set it there if it may be",
        )


def _capabilities(value: Mapping[str, Any], allowed: PodRights) -> Refused:
    for i, name in enumerate(value.get("add", ())):
        if name not in allowed.capabilities:
            yield f".add[{i}]", _not_listed(name, "capabilities")


def _seccomp(value: Mapping[str, Any], allowed: PodRights) -> Refused:
    if value["type"] not in allowed.seccomp_profiles:
        yield ".type", _not_listed(value["type"], "seccompProfiles")


def _not_listed(name: str, where: str) -> str:
    return f"{name} is not in the Fleet's podSecurity.{where}; add it there if it may be"


_CHECKS: Mapping[str, Callable[[Any, PodRights], Refused]] = MappingProxyType(
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
