"""What clients may ask of a service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.runtimes.runtime import CHATS, Api, Runtime


def apis(
    runtime: Runtime, settings: Mapping[str, Any], lifecycle: Mapping[str, Any]
) -> tuple[Api, ...]:
    """Those that a service with these effective values is for."""
    spoken = runtime.apis(settings)
    if lifecycle.get("chat", True):
        return spoken
    return tuple(api for api in spoken if api not in CHATS)
