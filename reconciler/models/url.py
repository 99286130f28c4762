"""Which URLs may be requested: the rules for a source, its mirror and every redirect. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urljoin, urlsplit, urlunsplit

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.http.host import is_loopback
from reconciler.models.scheme import FetchContext

_PORTS = {"http": 80, "https": 443}
_LONGEST_HOST = 253  # characters, by DNS


def check_url(source: str) -> str | None:
    """Why we would not send a request to this URL, or None."""
    if not re.fullmatch(r"[!-~]+", source):
        return "write the URL in ASCII, a blank as %20"
    try:
        url = urlsplit(source)
        host, port = url.hostname, url.port
    except ValueError as error:
        return f"not a URL: {error}"
    if url.username is not None or url.password is not None:
        return "no user name or password in a URL: do not put credentials into a fleet file"
    if url.scheme not in {"http", "https"}:
        return "not an https URL"
    if not host or port == 0:
        return "the URL has no host"
    if len(host) > _LONGEST_HOST:
        return f"no host has a name of {len(host):,} characters"
    if url.scheme == "http" and not is_loopback(host):
        return "plain http can be changed in transit: use https"
    return None


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """The URL to request in place of `url`: the mirror's, followed by the path and query."""
    parts = urlsplit(url)
    base = mirrors.get(parts.hostname or "")
    if base is None:
        return url
    if reason := check_url(base):
        raise ModelError(f"the Fleet's mirror for {parts.hostname} cannot be asked: {reason}")
    mirror = urlsplit(base)
    path = mirror.path.rstrip("/") + parts.path
    return urlunsplit((mirror.scheme, mirror.netloc, path, parts.query, ""))


def origin_of(url: str) -> str:
    """scheme://host:port of a URL: credentials are bound to it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"


def is_of(base: str, url: str) -> bool:
    """Whether a URL is `base`'s owner's: the same origin, or by https a host of its domain, such as
    auth.docker.io for registry-1.docker.io, or gitlab.com for registry.gitlab.com."""
    if origin_of(base) == origin_of(url):
        return True
    one, other = urlsplit(base), urlsplit(url)
    if not one.scheme == other.scheme == "https":
        return False
    names = [(parts.hostname or "").split(".") for parts in (one, other)]
    shorter, longer = sorted(names, key=len)
    shared = shorter if len(shorter) < len(longer) else shorter[1:]
    is_address = shorter[-1].isdecimal() or ":" in shorter[-1]
    return len(shared) >= 2 and not is_address and longer[-len(shared) :] == shared


def next_hop(
    url: str, location: str | None, context: FetchContext, domains: Sequence[str] = ()
) -> str:
    """The target of a redirect, with mirrors applied. Raises ModelError if we do not follow it.

    Redirects to `domains` are allowed whatever allowedHosts lists: they belong to a host that it
    does list.
    """
    if not location:
        raise DownloadFailed(f"{shown(url)}: a redirect without a location")
    try:
        target = urljoin(url, location)
    except ValueError as error:
        raise DownloadFailed(f"{shown(url)}: a redirect to an invalid URL: {error}") from error
    reason = check_url(target)
    if not reason and urlsplit(url).scheme == "https" and urlsplit(target).scheme == "http":
        reason = "a redirect from https to http is not followed"
    if reason:
        raise ModelError(f"{shown(url)} redirects to {shown(target)}: {reason}")
    host = urlsplit(target).hostname or ""
    if host in context.mirrors:
        return mirrored(target, context.mirrors)
    allowed = context.allowed_hosts
    known = {*(allowed or ()), *_mirror_hosts(context), urlsplit(url).hostname or ""}
    if allowed is not None and host not in known and not _is_below(host, domains):
        raise ModelError(
            f"{shown(url)} redirects to {host}, which is not in the Fleet's allowedHosts:"
            " add it there"
        )
    return target


def how_to_allow(host: str, context: FetchContext) -> str:
    """What to write for a private address: all that the fleet uses, since a list of hosts lets in
    nothing else."""
    if context.allowed_hosts is not None:
        return f"if it is yours, add {host} to the Fleet's allowedHosts"
    if not context.used_hosts:
        return (
            f"if it is yours, list {host} in the Fleet's allowedHosts, with every other host that"
            " the fleet uses"
        )
    hosts = f"allowedHosts: [{', '.join(sorted({*context.used_hosts, host}))}]"
    if context.has_policy:
        return f"if it is yours, write `{hosts}` in the spec of the Fleet"
    from reconciler.api.meta import API_VERSION

    head = f"apiVersion: {API_VERSION}, kind: Fleet, metadata: {{name: fleet}}"
    return f"if it is yours, add this document: `{{{head}, spec: {{{hosts}}}}}`"


def shown(url: str) -> str:
    """A URL, or invalid text in its place, for messages: without login and without query, which may
    be a signature."""
    text = url.partition("?")[0].partition("#")[0]
    scheme, _, rest = text.partition("://")
    login, at, _ = rest.partition("/")[0].rpartition("@")
    text = f"{scheme}://{rest.removeprefix(login + at)}" if at else text
    return "".join(c if c.isprintable() else "?" for c in text[:300])


def _is_below(host: str, domains: Sequence[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _mirror_hosts(context: FetchContext) -> frozenset[str]:
    usable = (base for base in context.mirrors.values() if check_url(base) is None)
    return frozenset(urlsplit(base).hostname or "" for base in usable)


def stated_hosts(source: str, context: FetchContext) -> frozenset[str]:
    """Hosts that a user wrote down: only these may have a private address (a mirror in the LAN). A
    redirect to any other must not reach into the private network."""
    if context.private_hosts is not None:
        return frozenset(context.private_hosts) | _mirror_hosts(context)
    own = urlsplit(source).hostname or ""
    return frozenset({own, *(context.allowed_hosts or ())}) | _mirror_hosts(context)
