"""Models in OCI registries: `oci://registry/repository:tag` or `...@sha256:DIGEST`.

oras reads the manifest, with the logins of the docker configuration, in a process of its own; our
own https fetches the layers, verified by their digests. A layer is a file whose name is in its
annotation org.opencontainers.image.title, as `oras push` writes it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from reconciler.api.errors import DownloadFailed, ModelError, UsageError
from reconciler.http.host import is_loopback
from reconciler.models.scheme import FileAccess, FileListing, ListRequest, RemoteFile, Scheme
from reconciler.models.tree import printable
from reconciler.models.url import check_url

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_SOURCE = re.compile(
    r"oci://(?P<registry>[A-Za-z0-9.-]+(?::[0-9]{1,5})?)"
    rf"/(?P<repository>{_NAME}(?:/{_NAME})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
TITLE = "org.opencontainers.image.title"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_LENGTH = 512


def _match(source: str) -> re.Match[str] | None:
    match = _SOURCE.fullmatch(source) if len(source) <= _MAX_LENGTH else None
    return match if match and (match["tag"] or match["digest"]) else None


def _check(source: str) -> str | None:
    match = _match(source)
    if match is None:
        return "write oci://REGISTRY/REPOSITORY:TAG, or oci://REGISTRY/REPOSITORY@sha256:DIGEST"
    return check_url(f"https://{match['registry']}/")


def _hosts(source: str) -> tuple[str, ...]:
    match = _match(source)
    host = urlsplit(f"https://{match['registry']}").hostname if match else None
    return (host,) if host else ()


def _files(request: ListRequest) -> FileListing:
    match = _match(request.source)
    if match is None:
        raise ModelError(f"{request.source}: {_check(request.source)}")
    base, repository = _place(match, request.context.mirrors)
    answer = _ask(base, repository, match["digest"] or match["tag"], request)
    origin = f"{urlsplit(base).scheme}://{urlsplit(base).netloc}"
    explain = functools.partial(_explain_blob, f"{urlsplit(base).netloc}/{repository}")
    access = FileAccess(str(answer["origin"]), answer["authorization"], explain=explain)
    files = []
    for name, layer in _named(repository, answer["layers"]):
        digest = str(layer.get("digest"))
        sha256 = _DIGEST.fullmatch(digest)
        if sha256 is None:
            raise ModelError(f"the layer {printable(name)} has no sha256 digest")
        size = layer.get("size")
        files.append(
            RemoteFile(
                name,
                f"{origin}/v2/{repository}/blobs/{digest}",
                size if isinstance(size, int) and size >= 0 else None,
                sha256[1],
                version=digest,
                access=access,
            )
        )
    return FileListing(tuple(files), folder=len(files) > 1, resolved=str(answer["digest"]))


def _place(match: re.Match[str], mirrors: Mapping[str, str]) -> tuple[str, str]:
    """The registry's URL and the repository there; a mirror's path precedes its name."""
    registry, repository = match["registry"], match["repository"]
    host = urlsplit(f"https://{registry}").hostname or ""
    mirror = mirrors.get(host)
    if mirror is None:
        return f"{'http' if is_loopback(host) else 'https'}://{registry}", repository
    if reason := check_url(mirror):
        raise ModelError(f"the Fleet's mirror for {host} cannot be asked: {reason}")
    url = urlsplit(mirror)
    prefix = url.path.strip("/")
    return f"{url.scheme}://{url.netloc}", f"{prefix}/{repository}" if prefix else repository


def _named(repository: str, layers: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The layers that are files of the model, by name."""
    if any(_note(layer, "io.deis.oras.content.unpack") for layer in layers):
        raise ModelError(
            "it holds a packed folder: push its files one by one, oras push REF FILE FILE ..."
        )
    last = repository.rpartition("/")[2]
    named = []
    for layer in layers:
        title = _note(layer, TITLE)
        if isinstance(title, str) and title:
            named.append((title.removeprefix("./"), layer))
        elif "gguf" in str(layer.get("mediaType")):  # as Docker packs models
            named.append((f"{last}.gguf", layer))
    if not named and len(layers) == 1:
        return [(last, layers[0])]
    if not named:
        raise ModelError(f"its {len(layers)} layers have no names ({TITLE}): push it with oras")
    return named


def _note(layer: Mapping[str, Any], name: str) -> object:
    """An annotation of a layer, of any type that its author wrote."""
    notes = layer.get("annotations")
    return notes.get(name) if isinstance(notes, dict) else None


def _ask(base: str, repository: str, reference: str, request: ListRequest) -> dict[str, Any]:
    from reconciler.models.child import ask, failure

    allowed, private = request.context.allowed_hosts, request.context.private_hosts
    question = {
        "base": base,
        "repository": repository,
        "reference": reference,
        "allowedHosts": None if allowed is None else list(allowed),
        "privateHosts": None if private is None else list(private),
        "usedHosts": list(request.context.used_hosts),
        "hasPolicy": request.context.has_policy,
    }
    answer = ask("reconciler.models.oci_registry", question, request.cancelled)
    if "error" not in answer:
        return answer
    where = f"{urlsplit(base).netloc}/{repository}"
    if answer["error"] == "refused":
        status = int(answer["status"])
        if error := _explain(where, status, {}):
            raise error
        pause = answer.get("retryAfter")
        raise DownloadFailed(f"{where}: the registry answers HTTP {status}", pause)
    raise failure(answer, f"{where}: {printable(str(answer.get('message')))}")


def _explain_blob(where: str, status: int, headers: Mapping[str, str]) -> ModelError | None:
    """A token lives for minutes, a download for hours: the next attempt gets a new one."""
    return None if status == 401 else _explain(where, status, headers)


def _explain(where: str, status: int, headers: Mapping[str, str]) -> ModelError | None:
    if status in {401, 403}:
        advice = (
            f"{where}: the registry does not let this machine read it: `docker login` or `oras"
            " login` there as the user that runs this program, with an account that may read it"
        )
    elif status == 404:
        advice = f"{where}: not in the registry: check the repository and the tag"
    else:
        return None
    return ModelError(advice, is_refusal=True)


def writable_place(target: str) -> tuple[str, str, str]:
    """URL of the registry, repository and tag of an address to push to. Raises UsageError."""
    match = _match(target)
    if match is None or match["digest"]:
        raise UsageError(f"{printable(target)}: write oci://REGISTRY/REPOSITORY:TAG")
    if reason := _check(target):
        raise UsageError(f"{printable(target)}: {reason}")
    return *_place(match, {}), match["tag"]


def _is_folder(source: str) -> bool:
    return _match(source) is not None


def _is_fixed(source: str) -> bool:
    """Whether it names a digest: tags move."""
    match = _match(source)
    return match is not None and match["digest"] is not None


SCHEME = Scheme("oci", _check, _hosts, None, _files, _is_folder, is_fixed=_is_fixed)
