"""A program that lists the files of a Hub repository's revision. JSON in, JSON out (see
child.py)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reconciler.api.errors import error_text
from reconciler.http.connect import ProxyNotSupported
from reconciler.http.proxies import library_environment, replace_variables
from reconciler.models.child import answering, failure_kind
from reconciler.models.url import check_url, origin_of
from reconciler.tokenfile import token_lines

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

_TIMEOUT_S = 20.0
_ENVIRONMENT = dict(os.environ)  # before it is replaced
_TOLD = ("x-error-code",)
_NUMBER = re.compile(r"^\[Errno -?[0-9]+\] ")


def main() -> None:
    answering(_answer)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """The files, or `error`: `refused` (by the Hub), `setup` (of this machine), or a
    failure_kind."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    endpoint = str(question["mirror"] or constants.ENDPOINT).rstrip("/")
    if reason := check_url(endpoint):
        return {"error": "setup", "message": f"HF_ENDPOINT {endpoint}: {reason}"}
    try:
        token = _token(question, endpoint)
    except (OSError, ValueError) as error:
        return {
            "error": "setup",
            "message": f"--hf-token-file {question['tokenFile']}: cannot be read:"
            f" {error_text(error, question['tokenFile'])}",
        }
    try:
        _connect_by_our_proxy(endpoint)
    except ProxyNotSupported as error:
        return {"error": "setup", "message": f"{origin_of(endpoint)} cannot be asked: {error}"}
    api = HfApi(endpoint=endpoint, token=token or False)
    _stay_at(endpoint)
    try:
        return _listing(api, question, token)
    except OfflineModeIsEnabled:
        message = "HF_HUB_OFFLINE is set for this program: unset it, or put the file there first"
        return {"error": "setup", "message": message}
    except HfHubHTTPError as error:
        return _refusal(error, bool(token))
    except Exception as error:  # noqa: BLE001  # the library lets its transport's errors through
        message = f"{origin_of(endpoint)} cannot be asked: {_error_line(error)}"
        return {"error": failure_kind(error), "message": message}


def _token(question: dict[str, Any], endpoint: str) -> str | None:
    """This machine's token, for the Hub that its owner chose. Never for a mirror named by the
    fleet: otherwise the fleet's authors could collect the tokens of its nodes."""
    from huggingface_hub import constants, get_token

    if origin_of(endpoint) != origin_of(constants.ENDPOINT):
        return None
    if question["tokenFile"]:
        return next(iter(token_lines(Path(question["tokenFile"]).expanduser())), None)
    return get_token()


def _connect_by_our_proxy(endpoint: str) -> None:
    """Decide as all downloads do. The library reads the variables when it makes its client."""
    from huggingface_hub import close_session

    replace_variables(library_environment(urlsplit(endpoint), _ENVIRONMENT))
    close_session()


def _stay_at(endpoint: str) -> None:
    """Refuse redirects to other hosts: only the permitted one is contacted."""
    from huggingface_hub import get_session

    def check(request: Any) -> None:  # noqa: ANN401  # the type's home differs by version
        if origin_of(str(request.url)) != origin_of(endpoint):
            raise ConnectionError(f"it leads to {request.url.host}, which is not followed")

    client = get_session()
    hooks = dict(client.event_hooks)
    own = [h for h in hooks.get("request", ()) if getattr(h, "__module__", "") != __name__]
    client.event_hooks = hooks | {"request": [*own, check]}


def _listing(api: HfApi, question: dict[str, Any], token: str | None) -> dict[str, Any]:
    from huggingface_hub import hf_hub_url

    repo = question["repo"]
    info = api.model_info(
        repo, revision=question["revision"], files_metadata=True, timeout=_TIMEOUT_S
    )
    commit = info.sha or question["revision"]
    files = [
        {
            "path": sibling.rfilename,
            "url": hf_hub_url(repo, sibling.rfilename, revision=commit, endpoint=api.endpoint),
            "size": sibling.size,
            "sha256": sibling.lfs.sha256 if sibling.lfs else None,
            "blob": sibling.blob_id,
        }
        for sibling in info.siblings or ()
    ]
    return {
        "commit": commit,
        "endpoint": api.endpoint,
        "authorization": f"Bearer {token}" if token else None,
        "files": files,
    }


def _refusal(error: HfHubHTTPError, with_token: bool) -> dict[str, Any]:
    headers = {k.lower(): v for k, v in error.response.headers.items()}
    pause = headers.get("retry-after", "")
    return {
        "error": "refused",
        "status": error.response.status_code,
        "headers": {name: headers[name] for name in _TOLD if name in headers},
        "retryAfter": min(float(pause), 3600.0) if pause.isdecimal() else None,
        "withToken": with_token,
    }


def _error_line(error: Exception) -> str:
    """The first line of an error's message without the system's number, or its type if there is
    none."""
    if isinstance(error, MemoryError):
        return "its answer is too long"
    lines = str(error).strip().splitlines()
    return _NUMBER.sub("", lines[0])[:300] if lines else type(error).__name__


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    main()
