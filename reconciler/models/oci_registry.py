"""A program that lists the layers of a manifest in an OCI registry. JSON in, JSON out (see
child.py)."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reconciler.api.plain_json import parse_json
from reconciler.http.proxies import proxy_for
from reconciler.models.child import answering, failure_kind
from reconciler.models.scheme import FetchContext
from reconciler.models.url import check_url, how_to_allow, is_of, origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import requests  # noqa: TID251 - types of oras
    from oras.provider import Registry

_TIMEOUT_S = 20.0
_MAX_MANIFEST_BYTES = 4 << 20
_ACCEPTED = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class _NoManifest(Exception):
    """The registry's response is not a manifest."""


def main() -> None:
    logging.disable(logging.CRITICAL)  # oras logs the errors that we report
    socket.getaddrinfo = _ADDRESSES.getaddrinfo
    answering(_answer)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """The layers, or `error`: `refused` (HTTP), `setup` (needs a user) or a failure_kind."""
    try:
        return _manifest(question)
    except _NoManifest as error:
        return dict(error.args[0])
    except PermissionError as error:
        return {"error": "setup", "message": str(error)}
    except MemoryError:
        return {"error": "failed", "message": "cannot be asked: its answer is too long"}
    except Exception as error:  # noqa: BLE001  # the libraries raise many kinds
        lines = str(error).strip().splitlines()
        text = lines[0][:300] if lines else type(error).__name__
        return {"error": failure_kind(error), "message": f"cannot be asked: {text}"}


def _manifest(question: dict[str, Any]) -> dict[str, Any]:
    base, repository = question["base"], question["repository"]
    registry, response = _get(question, f"{base}/v2/{repository}/manifests/{question['reference']}")
    if response.status_code != 200:
        pause = response.headers.get("Retry-After", "")
        after = min(float(pause), 3600.0) if pause.isdecimal() else None
        raise _NoManifest({"error": "refused", "status": response.status_code, "retryAfter": after})
    data = response.raw.read(_MAX_MANIFEST_BYTES + 1, decode_content=True)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if question["reference"].startswith("sha256:") and digest != question["reference"]:
        _fail(f"the registry returned another manifest, {digest}")
    try:
        manifest = parse_json(data) if len(data) <= _MAX_MANIFEST_BYTES else None
    except ValueError:
        manifest = None
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        _fail("it is not a manifest with layers (an index of several platforms is not a model)")
    return {
        "layers": layers,
        "digest": digest,
        "origin": origin_of(base),
        "authorization": registry.auth.get_auth_header().get("Authorization")
        if getattr(registry.auth, "token", None) or _is_basic(registry)
        else None,
    }


def _get(question: dict[str, Any], url: str) -> tuple[Registry, requests.Response]:
    """The response for a manifest, logged in as the registry requires."""
    base = question["base"]
    own = urlsplit(base).hostname or ""
    allowed, private = question["allowedHosts"], question["privateHosts"]
    context = FetchContext(
        allowed_hosts=None if allowed is None else tuple(allowed),
        private_hosts=None if private is None else tuple(private),
        used_hosts=tuple(question["usedHosts"]),
        has_policy=question["hasPolicy"],
    )
    registry = open_registry(
        base,
        question["repository"],
        lambda url, host: _forbidden(url, host, own, context),
        trusted=(*(allowed or ()), *(private or ())),
        remedy="add it to the Fleet's allowedHosts if it is to have it",
    )
    headers = {"Accept": ", ".join(_ACCEPTED)}
    first = registry.session.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S)
    if first.status_code not in {401, 403}:
        return registry, first
    sent = logged_in(registry, first, headers)
    if sent is None:
        return registry, first
    return registry, registry.session.get(url, headers=sent, stream=True, timeout=_TIMEOUT_S)


def open_registry(
    base: str,
    repository: str,
    forbidden: Callable[[str, str], str | None],
    *,
    trusted: Collection[str] = (),
    remedy: str,
) -> Registry:
    """A registry with the logins of the docker configuration. `forbidden` says why a URL on a host
    may not be requested: the registry's own, and where it sends for tokens. The login goes to these
    only if they are of the registry's domain, or their hosts `trusted`; `remedy` says what to do
    else."""
    from oras.container import Container
    from oras.provider import Registry

    parts = urlsplit(base)
    registry = Registry(parts.netloc, insecure=parts.scheme == "http")

    def refused(url: str, host: str, has_login: bool) -> str | None:
        if has_login and host not in trusted and not is_of(base, url):
            return f"the login of {parts.netloc} is not for {urlsplit(url).netloc}; {remedy}"
        return forbidden(url, host)

    _guard(registry, refused)
    registry.auth.load_configs(Container(f"{parts.netloc}/{repository}:any"))
    return registry


def logged_in(
    registry: Registry, refusal: requests.Response, headers: Mapping[str, str]
) -> dict[str, str] | None:
    """The headers of the same request with a login, as the refusal wants it; None: there is none.
    A token is for what was refused: one for reading does not write."""
    import oras.auth

    wants = refusal.headers.get("Www-Authenticate", "").partition(" ")[0].lower()
    if wants == "basic":
        login = getattr(registry.auth, "_basic_auth", None)
        if login is None:
            return None
        registry.auth = oras.auth.get_auth_backend("basic", registry.session, False)
        registry.auth._basic_auth = login
    sent, changed = registry.auth.authenticate_request(refusal, dict(headers), refresh=True)
    return dict(sent) if changed else None


def _is_basic(registry: Registry) -> bool:
    from oras.auth.basic import BasicAuth

    return isinstance(registry.auth, BasicAuth)


def _guard(registry: Registry, refused: Callable[[str, str, bool], str | None]) -> None:
    """Restrict the session to what is not forbidden, and to requests that end."""
    from requests.adapters import HTTPAdapter  # noqa: TID251 - of oras

    class CheckedAdapter(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            host = urlsplit(request.url).hostname or ""
            if reason := refused(str(request.url), host, "Authorization" in request.headers):
                raise PermissionError(f"it leads to {host}: {reason}")
            kwargs["timeout"] = kwargs.get("timeout") or _TIMEOUT_S
            proxy = proxy_for(urlsplit(request.url))  # the library has rules of its own
            kwargs["proxies"] = {} if proxy is None else {"https": proxy.geturl()}
            return super().send(request, *args, **kwargs)

    for prefix in ("http://", "https://"):
        registry.session.mount(prefix, CheckedAdapter())


def _forbidden(url: str, host: str, own: str, context: FetchContext) -> str | None:
    """Why a URL may not be requested, or None."""
    allowed, private = context.allowed_hosts, context.private_hosts
    if reason := check_url(url):
        return reason
    named = host == own or host in (allowed or ())
    if named if private is None else host in private:
        return None
    if allowed is not None and not named:
        return "it is not in the Fleet's allowedHosts: add it there"
    addresses = _ADDRESSES.resolve(host)
    if not all(ipaddress.ip_address(a.partition("%")[0]).is_global for a in addresses):
        return f"a private address: not followed; {how_to_allow(host, context)}"
    return None


class _Addresses:
    """The addresses of hosts that were judged. The libraries resolve a name again to connect to it:
    within this process they get the same addresses, and not what the name has meanwhile."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, ...]] = {}
        self._resolve = socket.getaddrinfo

    def resolve(self, host: str) -> tuple[str, ...]:
        """Raises OSError."""
        if host not in self._found:
            rows = self._resolve(host, None, type=socket.SOCK_STREAM)
            self._found[host] = tuple(str(address[0]) for *_, address in rows)
        return self._found[host]

    def getaddrinfo(self, host: Any, *args: Any, **options: Any) -> list[Any]:  # noqa: ANN401 - as socket's
        """`socket.getaddrinfo`, for hosts that were judged without another lookup."""
        addresses = self._found.get(host, (host,))
        return [row for each in addresses for row in self._resolve(each, *args, **options)]


_ADDRESSES = _Addresses()


def _fail(message: str) -> None:
    raise PermissionError(message)


if __name__ == "__main__":
    main()
