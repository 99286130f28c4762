"""What of the Helm chart is the same whatever its values are: definitions and rights. Pure.

It comes from the same functions as `reconcile install`, so that they cannot differ; what depends on
values (the Deployment) is a template written by hand, held against ours by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.kube.definitions.crd import crd_files
from reconciler.kube.installation import admission, rbac
from reconciler.kube.installation.install import priority_classes
from reconciler.kube.objects import Manifest
from reconciler.kube.yaml_text import dump_all

if TYPE_CHECKING:
    from reconciler.runtime import Runtime


def chart_files(runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """Path below the chart's folder -> text."""
    return crd_files(runtimes) | {
        "templates/rbac.yaml": _switched("rbac", (*rbac.manifests(), rbac.agents_role())),
        "templates/agent-policy.yaml": _switched("agentPolicy", admission.manifests()),
        "templates/priority-classes.yaml": _switched("priorityClasses", priority_classes()),
    }


def _switched(value: str, manifests: Iterable[Manifest]) -> str:
    """There where the value says so. Two braces are what Helm reads as its own."""
    text = dump_all(manifests)
    if "{{" in text:
        raise ValueError("a manifest of the chart holds what Helm takes for a template")
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"
