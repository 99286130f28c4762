"""What clients may ask of a service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.runtimes.runtime import CHAT, CHATS, Api, Runtime


def apis(
    runtime: Runtime, settings: Mapping[str, Any], lifecycle: Mapping[str, Any]
) -> tuple[Api, ...]:
    """Those that a service with these effective values is for."""
    spoken = runtime.apis(settings)
    if lifecycle.get("chat", True):
        return spoken
    return tuple(api for api in spoken if api not in CHATS)


def first_path(spoken: tuple[Api, ...]) -> str:
    """Return the path to print behind a service's address: that of chat, unless the service has
    other APIs only."""
    return CHAT.path if not spoken or CHAT in spoken else spoken[0].path
