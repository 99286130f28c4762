"""Models on the Hugging Face Hub: `hf://org/repo/file@revision`, `hf://org/repo@revision`.

huggingface_hub, in a process of its own, lists the files of a revision; our own https fetches the
bytes, so that they are resumed, verified and restricted like those of every other source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.models.scheme import FileAccess, FileListing, ListRequest, RemoteFile, Scheme
from reconciler.models.tree import is_hidden, listed, matching, printable, shards_of
from reconciler.models.url import check_url, origin_of

HUB = "huggingface.co"
# Where the Hub's redirects lead: cdn-lfs.huggingface.co, cas-bridge.xethub.hf.co, ...
_DOMAINS = (HUB, "hf.co")
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?"
_SOURCE = re.compile(
    rf"hf://(?P<repo>{_PART}/{_PART})(?:/(?P<file>[^@?#\\]+))?(?:@(?P<revision>[A-Za-z0-9._/+-]+))?"
)

# Files that engines read. Code (*.py) and pickles (*.bin, *.pt, *.pth, *.pkl, *.ckpt), which can
# contain code, are fetched only if spec.files names them.
_TENSORS = (
    "*.safetensors",
    "*.json",
    "*.jsonl",
    "*.txt",
    "*.jinja",
    "*.tiktoken",
    "*tokenizer.model",
    "*tiktoken.model",
)
_WANTED: Mapping[str, tuple[str, ...]] = {
    "gguf": ("*.gguf",),
    "mlx": _TENSORS,
    "safetensors": _TENSORS,
}


@dataclass(frozen=True, slots=True)
class HubSource:
    """The parts of a source. `file` is empty for the whole repository."""

    repo: str
    file: str
    revision: str


def split_source(source: str) -> HubSource | None:
    match = _SOURCE.fullmatch(source)
    if match is None:
        return None
    return HubSource(match["repo"], match["file"] or "", match["revision"] or "main")


def _check(source: str) -> str | None:
    hub = split_source(source)
    if hub is None or not source.isprintable():
        return "write hf://ORG/REPO/FILE@REVISION, or hf://ORG/REPO@REVISION for the repository"
    parts = hub.file.split("/") if hub.file else []
    if any(part in ("", ".", "..") for part in (*parts, *hub.revision.split("/"))):
        return 'no "." or ".." or empty part in a path or revision of hf://'
    return None


def _is_folder(source: str) -> bool:
    hub = split_source(source)
    return hub is not None and not hub.file


def _is_fixed(source: str) -> bool:
    """Whether it names a commit: branches and tags move."""
    hub = split_source(source)
    return hub is not None and re.fullmatch("[0-9a-f]{40}", hub.revision) is not None


def _files(request: ListRequest) -> FileListing:
    hub = split_source(request.source)
    if hub is None:
        raise ModelError(f"{request.source}: {_check(request.source)}")
    answer = _ask(hub, request)
    known = {str(entry["path"]): entry for entry in answer["files"]}
    paths = _chosen(hub, request, list(known))
    access = FileAccess(
        origin_of(str(answer["endpoint"])),
        answer["authorization"],
        _DOMAINS,
        functools.partial(_explain, hub, answer["tokenFrom"]),
        is_own=HUB not in request.context.mirrors,
    )
    files = tuple(
        RemoteFile(
            path.rpartition("/")[2] if hub.file else path,
            known[path]["url"],
            known[path]["size"],
            known[path]["sha256"],
            version=known[path]["blob"],
            access=access,
        )
        for path in paths
    )
    return FileListing(files, folder=not hub.file, resolved=str(answer["commit"]))


def _chosen(hub: HubSource, request: ListRequest, known: list[str]) -> list[str]:
    """The paths in the repository that the source means."""
    if hub.file:
        folder, slash, last = hub.file.rpartition("/")
        paths = [f"{folder}{slash}{name}" for name in shards_of(last)] or [hub.file]
        if missing := [path for path in paths if path not in known]:
            have = listed([p for p in sorted(known) if p.endswith((".gguf", ".safetensors"))])
            raise ModelError(
                f"{hub.repo} has no file {printable(missing[0])} at {hub.revision}; it has {have}"
            )
        return paths
    if request.patterns:
        return matching(known, request.patterns)
    wanted = [path for path in known if not is_hidden(path)]
    patterns = _WANTED[request.format]
    chosen = sorted(path for path in wanted if any(fnmatchcase(path, p) for p in patterns))
    if not chosen:
        raise ModelError(
            f"{hub.repo} contains no file of a {request.format} model at {hub.revision};"
            f" it has {listed(sorted(known))}: correct spec.format, or name what you want in"
            " spec.files"
        )
    return chosen


def _ask(hub: HubSource, request: ListRequest) -> dict[str, Any]:
    from reconciler.models.child import ask, failure

    mirror = request.context.mirrors.get(HUB)
    if mirror and (reason := check_url(mirror)):
        raise ModelError(f"the Fleet's mirror for {HUB} cannot be asked: {reason}")
    question = {
        "repo": hub.repo,
        "revision": hub.revision,
        "mirror": mirror,
        "tokenFile": request.hf_token_file,
    }
    answer = ask("reconciler.models.hf_hub", question, request.cancelled)
    if "error" not in answer:
        return answer
    if answer["error"] == "refused":
        status = int(answer.get("status") or 0)
        headers = answer.get("headers") or {}
        if error := _explain(hub, answer.get("tokenFrom"), status, headers):
            raise error
        pause = answer.get("retryAfter")
        raise DownloadFailed(f"{hub.repo}: the Hub answers HTTP {status}: try again later", pause)
    raise failure(answer, printable(str(answer.get("message"))))


_HOW_TO_LOG_IN = (
    "give this machine a token that may read it: HF_TOKEN, or a file named by FLEET_HF_TOKEN_FILE"
    " or --hf-token-file, or `hf auth login`"
)


def _explain(
    hub: HubSource, token_from: str | None, status: int, headers: Mapping[str, str]
) -> ModelError | None:
    advice = _advice(hub, token_from, status, headers)
    return ModelError(advice, is_refusal=True) if advice else None


def _advice(
    hub: HubSource, token_from: str | None, status: int, headers: Mapping[str, str]
) -> str | None:
    """What a user can do about a refusal by the Hub."""
    code = next((v for k, v in headers.items() if k.lower() == "x-error-code"), "")
    if code == "GatedRepo":
        asked = f"{hub.repo} is gated: ask for access at https://{HUB}/{hub.repo}"
        if token_from:
            return (
                f"{asked} with the account whose token this machine uses (from {token_from}), then"
                " try again"
            )
        return f"{asked}; then {_HOW_TO_LOG_IN}, from the account that has the access"
    if code == "RevisionNotFound":
        return f"{hub.repo} has no revision {hub.revision}: correct the part after @"
    if code == "EntryNotFound":
        return f"{hub.repo} has no such file at {hub.revision}: correct the source"
    if code == "RepoNotFound" or status in {401, 404}:
        if token_from:
            return (
                f"{hub.repo} is not there, or it is private and this machine's token (from"
                f" {token_from}) may not read it: check the name, and the token's account and"
                " permissions"
            )
        return f"{hub.repo} is not there, or it is private: check the name, or {_HOW_TO_LOG_IN}"
    if status == 403:
        if not token_from:
            return f"{hub.repo}: the Hub forbids it without a token: {_HOW_TO_LOG_IN}"
        return (
            f"{hub.repo}: the Hub forbids it to this machine's token (from {token_from}): check its"
            " permissions"
        )
    return None


SCHEME = Scheme("hf", _check, lambda source: (HUB,), None, _files, _is_folder, is_fixed=_is_fixed)
