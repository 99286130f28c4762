"""A ModelRouter of LLMKube: nothing routes here, and what it fronts is reached by itself. Pure.

Its document is read so that each part of it gets an answer. What a rule kept from a provider
outside is the part that its author must hear of: nothing here stands between clients and providers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
from reconciler.foreign.field import ANY, LIST, TEXT, ForeignField, answered, lost, one_of
from reconciler.foreign.remark import Remark

_BACKENDS = "clients ask each InferenceService by its own URL, which status prints"
_NO_RULES = "nothing routes: clients choose by URL; LiteLLM or Envoy in front of them can"

FIELDS: tuple[ForeignField, ...] = (
    answered("spec.backends", LIST, _BACKENDS),
    lost("spec.rules", LIST, _NO_RULES, []),
    answered("spec.defaultRoute", TEXT, "clients ask its InferenceService by its own URL"),
    answered(
        "spec.defaultRouteStrategy",
        one_of("Static", "BackendNameMatch"),
        _NO_RULES,
        "Static",
    ),
    lost(
        "spec.dataPlane",
        one_of("Proxy", "Gateway"),
        "write an AIGatewayRoute whose backends are the Services",
        "Proxy",
    ),
    lost("spec.gatewayRef", ANY, "write it in an HTTPRoute or an AIGatewayRoute"),
    lost("spec.policy.budgets", LIST, "nothing counts what clients ask for", []),
    lost("spec.policy.classification", ANY, "nothing looks at what requests carry"),
    lost("spec.policy.auditLog", ANY, "no request passes this program; engines log their own"),
    lost("spec.policy.auth", ANY, "a gateway of the cluster has to ask for it"),
    lost("spec.endpoint", ANY, "nothing is made that listens there"),
    answered("spec.proxy", ANY, "there is no proxy"),
    answered("spec.mcpServer", ANY, "LLMKube does nothing with it either"),
)
REQUIRED = ("backends",)
BY_ENTRY = ("spec.backends", "spec.rules")  # each entry has an answer of its own


def backend_remarks(
    content: Mapping[str, Any],
    services: Collection[ObjectRef],
    pooled: Mapping[ObjectRef, ObjectRef],
) -> Iterator[Remark]:
    """What becomes of each backend and rule. `pooled` are members of pools, with the pool's."""
    spec, namespace = content["spec"], content["metadata"].get("namespace", DEFAULT_NAMESPACE)
    for index, backend in enumerate(spec["backends"]):
        yield from _backend(f"spec.backends[{index}]", backend, namespace, services, pooled)
    names = {each.get("name") for each in spec["backends"]}
    default = spec.get("defaultRoute")
    if default and default not in names:
        yield Remark("FieldIgnored", "spec.defaultRoute", f"there is no backend {default}")
    for index, rule in enumerate(spec.get("rules", ())):
        yield _rule(f"spec.rules[{index}]", rule)


def _backend(
    at: str,
    backend: Mapping[str, Any],
    namespace: str,
    services: Collection[ObjectRef],
    pooled: Mapping[ObjectRef, ObjectRef],
) -> Iterator[Remark]:
    name = (backend.get("inferenceServiceRef") or {}).get("name")
    if name is None:
        who = (backend.get("external") or {}).get("provider", "a provider")
        text = f"nothing here asks {who}: clients do, with a key of their own"
        yield Remark("FieldIgnored", f"{at}.external", f"LLMKube's, and has no effect here: {text}")
        return
    ref = ObjectRef("InferenceService", namespace, str(name))
    field = f"{at}.inferenceServiceRef.name"
    if ref in pooled:
        text = f"clients ask {pooled[ref].name}, the pool of {name}, by the name of the Model"
        yield Remark("FieldAnswered", field, text)
    elif ref in services:
        yield Remark("FieldAnswered", field, f"clients ask {name} by its own URL")
    else:
        text = f'no InferenceService named "{name}" in namespace {namespace}'
        yield Remark("FieldIgnored", field, f"{text}; add it, or correct the name")


def _rule(at: str, rule: Mapping[str, Any]) -> Remark:
    words = ", ".join(rule.get("match") or {}) or "every request"
    text = f"LLMKube's, and has no effect here: no request is looked at by {words}"
    if rule.get("failClosed"):
        text += ", and none is kept from a provider outside (failClosed): clients have to see to it"
    return Remark("FieldIgnored", at, text)
