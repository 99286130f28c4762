"""Which API server a name refers to, and with which credentials.

What is written down is read here (`kubeconfig.py`). For the rest the official client reads
kubeconfigs, and runs the exec plugins of the user's own. It costs 36 MiB and 0.3 s of processor
time, so it does that in a process of its own, `python -m reconciler.kube.client.access`, while the
program reads its fleet.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from reconciler.api.plain_json import parse_json
from reconciler.http.connect import ProxyNotSupported
from reconciler.http.proxies import proxy_for
from reconciler.interpreter import python_module
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.client.errors import AccessError
from reconciler.kube.client.kubeconfig import POD_USER, choose, pod_grant, written_grant

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_TIMEOUT_S = 60.0  # an exec plugin may use a cloud login, and that a browser
_MOST_SAID = 400  # characters of error output of a plugin or the library


def open_cluster(
    name: str, context: str | None = None, *, kubeconfig: Path | None = None
) -> ApiServer:
    """The API server called `name`; no connection is opened yet.

    Without a context: the one of the kubeconfig with that name, or its only one; for the cluster
    "default" its current one. Raises AccessError, as the first call does.
    """
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.client.transport import Transport

    _must_exist(name, kubeconfig)
    credentials = ClusterCredentials(lambda: _ask(name, context, kubeconfig))
    credentials.prefetch()
    return ApiServer(name, Transport(name, credentials))


def _must_exist(name: str, kubeconfig: Path | None) -> None:
    """Report at once what can be checked without the library."""
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise AccessError(f"cluster {name}: no kubeconfig at {kubeconfig}")
    elif not _kubeconfigs() and not _in_pod():
        raise AccessError(
            f"cluster {name}: no kubeconfig at {' or '.join(_candidates())}: give one with"
            " --kubeconfig FILE or KUBECONFIG (inside a pod its service account is taken)"
        )


def _candidates() -> list[str]:
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [path for path in listed if path] or [str(Path.home() / ".kube" / "config")]


def _kubeconfigs() -> list[str]:
    return [path for path in _candidates() if Path(path).expanduser().is_file()]


def _in_pod() -> bool:
    """A kubeconfig that is set has precedence, also in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG")


def _ask(name: str, context: str | None, kubeconfig: Path | None) -> Grant:
    """Who we are there. Raises AccessError."""
    match [kubeconfig] if kubeconfig is not None else _kubeconfigs():
        case [only]:
            grant = written_grant(Path(only).expanduser(), context, name)
        case []:
            grant = pod_grant() if context is None else None
        case _:
            grant = None  # several are put together
    return grant or _ask_child(name, context, kubeconfig)


def _ask_child(name: str, context: str | None, kubeconfig: Path | None) -> Grant:
    """What the child makes of it. Names and paths go by argv, the credentials come by a pipe."""
    command = python_module("reconciler.kube.client.access", f"--name={name}")
    command += [f"--context={context}"] if context is not None else []
    command += [f"--kubeconfig={kubeconfig}"] if kubeconfig is not None else []
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        answer = parse_json(done.stdout)
    except subprocess.TimeoutExpired:
        raise AccessError(
            f"cluster {name}: no credentials within {_TIMEOUT_S:g} s; does the kubeconfig's exec"
            " plugin wait for a login? Log in by hand first"
        ) from None
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        reason = last[0][:_MOST_SAID] if last else f"exit code {done.returncode}"
        raise AccessError(f"cluster {name}: the kubeconfig could not be read: {reason}") from None
    except OSError as error:
        raise AccessError(f"cluster {name}: {sys.executable}: {error.strerror}") from None
    if "error" in answer:
        raise AccessError(f"cluster {name}: {answer['error']}")
    return Grant(**answer)


# --- the child -------------------------------------------------------------------------------


def main() -> None:
    """Print the grant as JSON, or {"error": text}."""
    parser = argparse.ArgumentParser(prog="python -m reconciler.kube.client.access")
    parser.add_argument("--name", required=True)
    parser.add_argument("--context")
    parser.add_argument("--kubeconfig")
    options = parser.parse_args()
    complaints = _Complaints()
    logging.basicConfig(handlers=[complaints], level=logging.ERROR)
    paths = options.kubeconfig or os.pathsep.join(_kubeconfigs())
    try:
        if paths:
            answer = asdict(official_grant(paths, options.context, options.name))
        else:
            answer = asdict(_from_service_account(options.context))
    except AccessError as error:
        answer = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the library raises whatever a file made it stumble on
        answer = {"error": f"{paths}: {_short(error)}"}
    if complaints.messages:  # logged by the library about a plugin whose failure it ignores
        answer = {"error": f"{paths}: {_short(complaints.messages[0])}"}
    print(json.dumps(answer))


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def official_grant(paths: str, context: str | None, name: str) -> Grant:
    """What the official client makes of these kubeconfigs. Raises AccessError, and more."""
    configuration, library = _library()
    merger = library.kube_config.KubeConfigMerger(paths)
    if merger.config is None:
        raise AccessError(f"{paths}: nothing in it")
    contexts = _contexts(merger.config.value)
    chosen = choose(contexts, context, name, merger.config.value.get("current-context"), paths)
    loader = library.kube_config.KubeConfigLoader(
        merger.config,
        active_context=chosen,
        config_base_path=None,
        # a refresh token works once: kubectl needs the new one
        config_persister=merger.save_changes,
    )
    loader.load_and_set(configuration)
    user = contexts[chosen].get("user") or "anonymous"
    details = merger.config["users"].get_with_name(user, safe=True)
    if details is not None and details["user"].safe_get("as"):
        raise AccessError(
            f"{paths}: user {user} impersonates another user (as), which is not supported: give a"
            " context of that user"
        )
    expiry = getattr(loader, "expiry", None)
    return _grant(configuration, user, expires_at=expiry.timestamp() if expiry else None)


def _contexts(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = (getattr(row, "value", row) for row in config.get("contexts") or ())
    return {str(row["name"]): row.get("context") or {} for row in rows}


def _from_service_account(context: str | None) -> Grant:
    if context is not None:
        raise AccessError(f"context {context!r} needs a kubeconfig, and this pod has none")
    configuration, library = _library()
    try:
        library.load_incluster_config(configuration)
    except library.ConfigException as error:
        raise AccessError(
            f"{_short(error)} The pod needs a service account (automountServiceAccountToken)"
        ) from None
    return _grant(
        configuration,
        POD_USER,
        token_file=str(library.incluster_config.SERVICE_TOKEN_FILENAME),
    )


def _library() -> tuple[Any, Any]:
    """An empty configuration and the module that fills it, which have no useful types."""
    import kubernetes.client
    import kubernetes.config

    configuration = kubernetes.client.Configuration()
    configuration.proxy = None  # of the environment, which is read by rules of ours
    return configuration, kubernetes.config


def _grant(
    configuration: Any,  # noqa: ANN401 - the library's
    user: str,
    *,
    expires_at: float | None = None,
    token_file: str | None = None,
) -> Grant:
    try:
        proxy = configuration.proxy or proxy_for(urlsplit(configuration.host))
    except ProxyNotSupported as error:
        raise AccessError(str(error)) from None
    token = configuration.api_key.get("BearerToken")
    return Grant(
        server=configuration.host,
        user=user,
        authorization=token.strip() if token and token_file is None else None,
        ca=_text(configuration.ssl_ca_cert),
        certificate=_text(configuration.cert_file),
        key=_text(configuration.key_file),
        insecure=not configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name or None,
        proxy=proxy.geturl() if isinstance(proxy, SplitResult) else proxy,
        token_file=token_file,
        expires_at=expires_at,
    )


def _text(path: str | None) -> str | None:
    return Path(path).read_text() if path else None


def _short(error: object) -> str:
    return " ".join(str(error).split())[:_MOST_SAID] or type(error).__name__


if __name__ == "__main__":
    main()
