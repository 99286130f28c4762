"""The host of a URL or of a request, and the page that made a request."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """True if a host as written in a URL is this machine. Names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_loopback(host: str) -> bool:
    """Whether a Host header names this machine to itself. A page in a browser may point a name of
    its own at our address: such a name is not ours."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.removeprefix("[").removesuffix("]")
    return is_loopback(name.lower())


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin made this request, another port's included. What is no
    browser sends neither header."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
