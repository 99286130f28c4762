"""A program that lists the files of a Hub repository's revision. JSON in, JSON out (see
child.py)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reconciler.api.errors import error_text
from reconciler.http.connect import ProxyNotSupported
from reconciler.http.proxies import library_environment, replace_variables
from reconciler.models.child import answering, failure_kind
from reconciler.models.url import check_url, origin_of
from reconciler.tokenfile import token_lines, written_lines

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

_TIMEOUT_S = 20.0
_ENVIRONMENT = dict(os.environ)  # before it is replaced
_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
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
    source = _TokenSource.of(question)
    try:
        token = source.token() if _is_own(endpoint) else None
    except (OSError, ValueError) as error:
        reason = error_text(error, source.file)
        return {"error": "setup", "message": f"{source.name}: cannot be read: {reason}"}
    try:
        _connect_by_our_proxy(endpoint)
    except ProxyNotSupported as error:
        return {"error": "setup", "message": f"{origin_of(endpoint)} cannot be asked: {error}"}
    api = HfApi(endpoint=endpoint, token=token or False)
    _stay_at(endpoint)
    try:
        listing = _listing(api, question, token)
        return listing | {"tokenFrom": source.name if token else None}
    except OfflineModeIsEnabled:
        message = "HF_HUB_OFFLINE is set for this program: unset it, or put the file there first"
        return {"error": "setup", "message": message}
    except HfHubHTTPError as error:
        return _refusal(error, source.name if token else None)
    except Exception as error:  # noqa: BLE001  # the library lets its transport's errors through
        message = f"{origin_of(endpoint)} cannot be asked: {_error_line(error)}"
        return {"error": failure_kind(error), "message": message}


def _is_own(endpoint: str) -> bool:
    """True for the Hub that this machine's owner chose. A mirror named by the fleet never gets the
    token: otherwise the fleet's authors could collect the tokens of its nodes."""
    from huggingface_hub import constants

    return origin_of(endpoint) == origin_of(constants.ENDPOINT)


@dataclass(frozen=True, slots=True)
class _TokenSource:
    """The place of this machine's token, with its name for messages. Without a file: a variable."""

    name: str
    file: Path | None
    is_stated: bool = False

    @classmethod
    def of(cls, question: dict[str, Any]) -> _TokenSource:
        """Choose in the order of the Hub's library, after the file that an option names."""
        from huggingface_hub import constants

        if stated := question["tokenFile"]:
            return cls(f"--hf-token-file {stated}", Path(stated).expanduser(), is_stated=True)
        if os.environ.get("HF_OIDC_RESOURCE"):
            return cls("HF_OIDC_RESOURCE", None)
        variable = next((name for name in _VARIABLES if os.environ.get(name)), None)
        if variable and os.environ[variable].strip():
            return cls(variable, None)
        return cls(str(constants.HF_TOKEN_PATH), Path(constants.HF_TOKEN_PATH))

    def token(self) -> str | None:
        """Return the token, or None if there is none. Raises OSError, ValueError."""
        from huggingface_hub import get_token

        lines: list[str] = []
        if self.file is not None and (self.is_stated or self.file.exists()):
            lines = token_lines(self.file)
        if not self.is_stated:  # the library also renews a token that it has stored
            lines = written_lines((get_token() or "").encode(errors="surrogateescape"))
        token = next(iter(lines), None)
        if token and (" " in token or not token.isprintable()):
            raise ValueError("the token contains white space; copy the token again")
        return token


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


def _refusal(error: HfHubHTTPError, token_from: str | None) -> dict[str, Any]:
    headers = {k.lower(): v for k, v in error.response.headers.items()}
    pause = headers.get("retry-after", "")
    return {
        "error": "refused",
        "status": error.response.status_code,
        "headers": {name: headers[name] for name in _TOLD if name in headers},
        "retryAfter": min(float(pause), 3600.0) if pause.isdecimal() else None,
        "tokenFrom": token_from,
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
