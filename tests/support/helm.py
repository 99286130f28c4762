"""helm, and the chart of this repository."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.kube_binaries import kube_binaries

CHART = Path(__file__).parent.parent.parent / "deploy" / "chart"
NAMESPACE = "fleet-reconciler"


def helm(*words: str, check: bool = True) -> str:
    """What helm prints; with `check` off, stdout and stderr together."""
    ended = subprocess.run((kube_binaries() / "helm", *words), capture_output=True, text=True)
    if not check:
        return ended.stdout + ended.stderr
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def set_values(values: Mapping[str, object]) -> list[str]:
    """The words that set values of a chart, as people type them: `scheduler.enabled` -> true. Helm
    decides what is a number: a decimal is none (`--set-json` would say otherwise)."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={_typed(value)}")]


def _typed(value: object) -> str:
    if isinstance(value, list | tuple):
        return "{" + ",".join(map(_typed, value)) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
