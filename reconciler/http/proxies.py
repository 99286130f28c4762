"""The one reader of the variables that state a proxy: `https_proxy`, `all_proxy` and `no_proxy`.

Names in lower case come before names in upper case, and an empty value states no proxy. `no_proxy`
is a list of `host`, `.domain`, `*.domain`, `host:port`, addresses, networks such as `10.0.0.0/8`,
or `*`. A domain includes its subdomains. This machine is never reached through a proxy.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from reconciler.http.connect import PORTS, ProxyNotSupported
from reconciler.http.host import is_loopback

_STATED = ("https_proxy", "all_proxy")
_READ_BY_LIBRARIES = ("http_proxy", *_STATED, "no_proxy")
_PORT = re.compile(r"(\[[^\]]*\]|[^:]*):([0-9]{1,5})")


def proxy_for(url: SplitResult, environ: Mapping[str, str] | None = None) -> SplitResult | None:
    """Return the user's proxy for an https URL, None to connect directly. Raises
    ProxyNotSupported."""
    environ = os.environ if environ is None else environ
    host = url.hostname or ""
    if url.scheme == "http" or is_loopback(host):
        return None
    port = url.port or PORTS[url.scheme]
    if _is_excepted(host, port, _value(environ, "no_proxy")[1]):
        return None
    for name in _STATED:
        variable, stated = _value(environ, name)
        if stated:
            return _read(variable, stated, host)
    return _system_proxy(host) if sys.platform == "darwin" else None


def are_stated() -> bool:
    """True if the environment, or macOS, states any proxy."""
    if any(_value(os.environ, name)[1] for name in _STATED):
        return True
    return sys.platform == "darwin" and _system_proxy("") is not None


def library_environment(url: SplitResult, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a client library uses exactly our choice for this URL. They
    replace all variables that such a library reads. Raises ProxyNotSupported."""
    proxy = proxy_for(url, environ)
    return {"no_proxy": "*"} if proxy is None else {"https_proxy": proxy.geturl()}


def replace_variables(values: Mapping[str, str]) -> None:
    """Put `library_environment` into force in this process, which must be a child of its own."""
    for name in _READ_BY_LIBRARIES:
        for spelling in (name, name.upper()):
            os.environ.pop(spelling, None)
    os.environ.update(values)


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The name as it is spelt in the environment, and its value."""
    spelling = name if name in environ else name.upper()
    return spelling, environ.get(spelling, "").strip()


def _read(variable: str, stated: str, host: str) -> SplitResult:
    proxy = urlsplit(stated if "//" in stated else f"http://{stated}")
    if proxy.scheme == "http" and proxy.hostname:
        return proxy
    scheme = proxy.scheme if proxy.hostname else "no address"
    raise ProxyNotSupported(
        f"{variable}: a proxy by {scheme} is not supported. State one by http (CONNECT), or add"
        f" {host} to no_proxy"
    )


def _system_proxy(host: str) -> SplitResult | None:
    """Return the proxy of macOS's network settings."""
    from urllib.request import getproxies, proxy_bypass  # noqa: TID251 - open no connection

    if host and proxy_bypass(host):
        return None
    stated = getproxies().get("https")
    return _read("System Settings", stated, host) if stated else None


def _is_excepted(host: str, port: int, no_proxy: str) -> bool:
    return any(_matches(host, port, entry) for entry in re.split(r"[\s,]+", no_proxy) if entry)


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    if (stated := _PORT.fullmatch(entry)) is not None:
        if int(stated[2]) != port:
            return False
        entry = stated[1]
    entry = entry.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # one of them is a name
        name = entry.removeprefix("*").removeprefix(".").rstrip(".").lower()
        return bool(name) and f".{host.rstrip('.').lower()}".endswith(f".{name}")
