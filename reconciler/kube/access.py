"""Which API server a name means, and who we are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _configuration(context: str | None, kubeconfig: Path | None) -> Any:
    """What the official client makes of a kubeconfig."""
    from kubernetes.config import kube_config

    return kube_config.new_client_from_config(
        str(kubeconfig) if kubeconfig else None, context
    ).configuration
