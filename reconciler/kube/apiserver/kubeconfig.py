"""Kubeconfigs that need no program and no login: one file, with a token or a client certificate.

Whatever is not that plain (exec plugins, auth providers, several files, proxies, anything unknown
or wrong) is the official client's to read and to explain.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.kube.apiserver.credentials import Grant
from reconciler.kube.apiserver.errors import AccessError

_CLUSTER = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
        "extensions",
    }
)
_USER = frozenset(
    {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
)


class _NotPlainError(Exception):
    """Stays inside this module."""


def plain_grant(path: Path, context: str | None, name: str) -> Grant | None:
    """What the official client would make of the file; None: ask it. Raises AccessError where no
    context is meant."""
    from urllib.request import getproxies

    if getproxies().keys() - {"no"}:
        return None
    try:
        config = _read(path)
        rows = _named(config, "contexts", "context")
        chosen = choose(rows, context, name, config.get("current-context"), str(path))
        return _grant(config, rows[chosen], path.absolute().parent)
    except (_NotPlainError, OSError, ValueError):  # also of base64 and of text
        return None


def choose(
    contexts: Mapping[str, Any],
    wanted: str | None,
    name: str,
    current: object,
    paths: str,
) -> str:
    """A context that somebody meant: a wrong guess would write into another cluster."""
    if wanted is None:
        if name in contexts:
            return name
        if len(contexts) == 1:
            return next(iter(contexts))
        if name == "default" and current in contexts:
            return str(current)
    elif wanted in contexts:
        return wanted
    known = f"it has {', '.join(sorted(contexts))}" if contexts else "it has none"
    if wanted is None:
        raise AccessError(f"{paths}: which context? {known}: say --cluster {name}=CONTEXT")
    raise AccessError(f"{paths}: no context {wanted!r}; {known}")


def _grant(config: dict[str, Any], context: dict[str, Any], beside: Path) -> Grant:
    cluster = _entry(config, "clusters", "cluster", context, _CLUSTER)
    user = _entry(config, "users", "user", context, _USER)
    server, token = _text(cluster, "server"), _text(user, "token")
    if server is None:
        raise _NotPlainError
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool):
        raise _NotPlainError
    tls = server.startswith("https")
    return Grant(
        server=server.rstrip("/"),
        user=context["user"],
        authorization=f"Bearer {token}".strip() if token else None,
        ca=_pem(cluster, "certificate-authority", beside) if tls else None,
        certificate=_pem(user, "client-certificate", beside) if tls else None,
        key=_pem(user, "client-key", beside) if tls else None,
        insecure=insecure,
        tls_server_name=_text(cluster, "tls-server-name"),
    )


def _read(path: Path) -> dict[str, Any]:
    from reconciler.source.documents import read_any

    match read_any(path.read_bytes()):
        case [dict() as config]:
            return config
    raise _NotPlainError


def _named(config: dict[str, Any], rows: str, part: str) -> dict[str, dict[str, Any]]:
    """The entries of a list by their names, each once."""
    listed = config.get(rows)
    if not isinstance(listed, list) or not listed:
        raise _NotPlainError
    found: dict[str, dict[str, Any]] = {}
    for row in listed:
        entry = row.get(part) if isinstance(row, dict) else None
        if not isinstance(entry, dict) or not isinstance(row.get("name"), str):
            raise _NotPlainError
        if found.setdefault(row["name"], entry) is not entry:
            raise _NotPlainError
    return found


def _entry(
    config: dict[str, Any], rows: str, part: str, context: dict[str, Any], known: frozenset[str]
) -> dict[str, Any]:
    """The cluster or the user that a context names, with nothing in it but what is known."""
    entry = _named(config, rows, part).get(_text(context, part) or "")
    if entry is None or entry.keys() - known:
        raise _NotPlainError
    return entry


def _text(entry: dict[str, Any], field: str) -> str | None:
    """None: absent or empty."""
    value = entry.get(field)
    if value is not None and not isinstance(value, str):
        raise _NotPlainError
    return value or None


def _pem(entry: dict[str, Any], field: str, beside: Path) -> str | None:
    """What stands in the kubeconfig goes before a file."""
    data = f"{field}-data"
    if data in entry:
        packed = _text(entry, data)
        return packed and base64.b64decode(packed, validate=True).decode()
    name = _text(entry, field)
    return name and (beside / name).read_text()
