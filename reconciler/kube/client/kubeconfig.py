"""Credentials that are written down, read without the official client: a token or certificates in
one kubeconfig, or a pod's service account.

Most are. Whatever is anything else (a plugin, a proxy, a mistake) is None here: the official client
knows all that there is, and says what is wrong.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from reconciler.http import proxies
from reconciler.kube.client.credentials import Grant
from reconciler.kube.client.errors import AccessError

POD_USER = "the pod's service account"
_POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BYTES = 1 << 20
_CERTIFICATES = {"client-certificate", "client-key"}
_ANYTHING = {"extensions"}  # what tools note for themselves

Row = Mapping[str, Any]


def written_grant(path: Path, context: str | None, name: str) -> Grant | None:
    """What the context of a kubeconfig holds itself; None: ask the official client."""
    from reconciler.source.documents import read_foreign

    try:
        if proxies.are_stated() or path.stat().st_size > _MAX_BYTES:
            return None
        (config,) = read_foreign(path.read_bytes())
        return _grant(config, path, context, name)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AccessError):
        return None


def pod_grant(folder: Path = _POD_FILES) -> Grant | None:
    """The service account of the pod we run in; None: ask the official client."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{word}") for word in ("HOST", "PORT"))
    token = folder / "token"
    try:
        if not (host and port and token.read_text()) or proxies.are_stated():
            return None
        ca = (folder / "ca.crt").read_text()
    except (OSError, ValueError):
        return None
    server = f"https://[{host}]:{port}" if {":", "%"} & {*host} else f"https://{host}:{port}"
    return Grant(server, POD_USER, ca=ca, token_file=str(token)) if ca else None


def choose(
    contexts: Mapping[str, Row], wanted: str | None, name: str, current: object, paths: str
) -> str:
    """A context that was named: a wrong guess would write into another cluster."""
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


def _grant(config: Row, path: Path, context: str | None, name: str) -> Grant | None:
    contexts = _named(config["contexts"], "context")
    chosen = contexts[choose(contexts, context, name, config.get("current-context"), str(path))]
    cluster = _named(config["clusters"], "cluster")[chosen["cluster"]]
    user = _named(config["users"], "user")[chosen["user"]]
    authority = {"certificate-authority"}
    insecure = cluster.get("insecure-skip-tls-verify", False)
    settings = {key: value for key, value in cluster.items() if key not in _ANYTHING}
    settings.pop("insecure-skip-tls-verify", None)
    if not (
        _has_only(settings, {"server", "tls-server-name"}, authority)
        and _has_only(user, {"token"}, _CERTIFICATES)
        and isinstance(insecure, bool)
        and settings["server"].startswith("https://")
    ):
        return None
    return Grant(
        server=settings["server"].rstrip("/"),
        user=chosen["user"],
        authorization=f"Bearer {user['token']}".strip() if "token" in user else None,
        ca=_pem(settings, "certificate-authority", path),
        certificate=_pem(user, "client-certificate", path),
        key=_pem(user, "client-key", path),
        insecure=insecure,
        tls_server_name=settings.get("tls-server-name"),
    )


def _named(rows: list[Row], what: str) -> dict[str, Row]:
    """Name -> the entry of that name. ValueError: a name that is not text, or two of one name."""
    by_name = {row["name"]: row[what] for row in rows}
    if len(by_name) < len(rows) or not all(isinstance(name, str) for name in by_name):
        raise ValueError(what)
    return by_name


def _has_only(row: Row, plain: Set[str], files: Set[str]) -> bool:
    """Whether it says no more than this, each a text; a file may be given by its content."""
    known = plain | files | {f"{key}-data" for key in files}
    return row.keys() <= known and all(isinstance(v, str) and v for v in row.values())


def _pem(row: Row, key: str, beside: Path) -> str | None:
    """A certificate or key: what is written down comes before a file."""
    if data := row.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    if file := row.get(key):
        return Path(os.path.normpath(beside.absolute().parent / file)).read_text()
    return None
