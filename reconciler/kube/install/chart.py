"""The parts of the Helm chart that do not depend on its values: definitions and RBAC. Pure.

They come from the same functions as `reconcile install`, so that they cannot differ. The
Deployment, which depends on values, is a handwritten template that a test compares with ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.kube.crd.definitions import crd_files
from reconciler.kube.install import admission, rbac
from reconciler.kube.install.manifests import priority_classes
from reconciler.kube.objects import Manifest
from reconciler.kube.yaml_text import dump_all

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime


def chart_files(runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """Path below the chart's folder -> text."""
    return crd_files(runtimes) | {
        "templates/rbac.yaml": _switched("rbac", (*rbac.manifests(), rbac.agents_role())),
        "templates/agent-policy.yaml": _switched("agentPolicy", admission.manifests()),
        "templates/priority-classes.yaml": _switched("priorityClasses", priority_classes()),
    }


def _switched(value: str, manifests: Iterable[Manifest]) -> str:
    """Included if the value is set. Helm reads double braces as its own."""
    text = dump_all(manifests)
    if "{{" in text:
        raise ValueError("a manifest of the chart holds what Helm takes for a template")
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"
