"""Put files into an OCI registry as an artifact that `oci://` reads back: a layer a file, titled.

oras knows the logins of the docker configuration. The bytes are sent by its session, from the file
and not from memory, as oras itself would; what the registry has already is not sent again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin, urlsplit

from reconciler.api.errors import DownloadFailed, ModelError, UsageError
from reconciler.models.oci import TITLE, writable_place
from reconciler.models.tree import printable
from reconciler.models.url import check_url, is_of, origin_of

if TYPE_CHECKING:
    import requests  # noqa: TID251 - types of oras

_TAKEN_IN_S = 300.0  # a registry may read what it got once more before it answers
_CONNECTED_IN_S = 20.0
_MOST_SAID = 300  # bytes
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_EMPTY = "application/vnd.oci.empty.v1+json"
_ARTIFACT = "application/vnd.inference.llmkube.model.v1"
_NOTHING = b"{}"  # the config of an artifact that needs none
_THERE = (200, 307)  # 307: where its bytes lie
_ABSENT = (403, 404)  # 403: of a repository that there is not yet, or may be written and not read


@dataclass(frozen=True, slots=True)
class PushedFile:
    """`path` is its name in the artifact, `at` where it is read."""

    path: str
    at: Path
    size_bytes: int
    sha256: str

    @property
    def descriptor(self) -> dict[str, Any]:
        return {
            "mediaType": "application/octet-stream",
            "digest": f"sha256:{self.sha256}",
            "size": self.size_bytes,
            "annotations": {TITLE: self.path},
        }


def push(target: str, files: Iterable[PushedFile], tell: Callable[[str], None]) -> str:
    """Send the files, then the manifest under the tag of `target`. The source that has exactly
    these bytes, by its digest. `tell` takes a line for each file.

    Raises UsageError if the target is not `oci://REGISTRY/REPOSITORY:TAG`, ModelError if the
    registry refuses, DownloadFailed if it gives no answer.
    """
    base, repository, tag = writable_place(target)
    files = tuple(files)
    config = {"mediaType": _EMPTY, "digest": _digest(_NOTHING), "size": len(_NOTHING)}
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": _ARTIFACT,
            "config": config,
            "layers": [file.descriptor for file in files],
        }
    ).encode()
    writer = _Writer(base, repository)
    try:
        for file in files:
            is_there = writer.has(f"sha256:{file.sha256}")
            tell(f"{file.path}: {'is there already' if is_there else 'sending'}")
            if not is_there:
                writer.send(f"sha256:{file.sha256}", file.at)
        if not writer.has(_digest(_NOTHING)):
            writer.send(_digest(_NOTHING), _NOTHING)
        writer.name(manifest, tag)
    except (ModelError, UsageError):
        raise
    except PermissionError as error:
        raise ModelError(f"{writer.where}: {error}") from error
    except Exception as error:  # the libraries raise many kinds
        lines = str(error).strip().splitlines()
        text = printable(lines[0][:300] if lines else type(error).__name__)
        raise DownloadFailed(f"{writer.where}: nothing was named there: {text}") from error
    return f"{target}@{_digest(manifest)}"


@dataclass(frozen=True, slots=True)
class _Reply:
    """`text` is the beginning of the body, for people."""

    status: int
    location: str
    text: str


class _Writer:
    """One repository, written to."""

    def __init__(self, base: str, repository: str) -> None:
        from reconciler.models.oci_registry import open_registry

        self._base = base
        self._root = f"{base}/v2/{repository}"
        self.where = f"{urlsplit(base).netloc}/{repository}"
        self._registry = open_registry(
            base,
            repository,
            lambda url, _: check_url(url),
            remedy="push with `oras push` if it is to have it",
        )

    def has(self, digest: str) -> bool:
        reply = self._ask("HEAD", f"{self._root}/blobs/{digest}")
        if reply.status in _ABSENT:
            return False
        self._require(reply, *_THERE)
        return True

    def send(self, digest: str, content: Path | bytes) -> None:
        begun = self._ask("POST", f"{self._root}/blobs/uploads/")
        self._require(begun, 202)
        place = urljoin(self._base, begun.location)
        if not is_of(self._base, place):
            raise ModelError(
                f"{self.where}: it wants files to be sent to {urlsplit(place).netloc}, a host of"
                " somebody else; push with `oras push` if they are to go there"
            )
        mark = "&" if urlsplit(place).query else "?"
        url = f"{place}{mark}{urlencode({'digest': digest})}"
        self._require(self._ask("PUT", url, content, "application/octet-stream"), 201)

    def name(self, manifest: bytes, tag: str) -> None:
        self._require(self._ask("PUT", f"{self._root}/manifests/{tag}", manifest, _MANIFEST), 201)

    def _ask(self, method: str, url: str, content: Path | bytes = b"", kind: str = "") -> _Reply:
        """The answer, logged in where the registry wants that; the login goes to it alone."""
        from reconciler.models.oci_registry import logged_in

        headers = {"Content-Type": kind} if kind else {}
        if origin_of(url) != origin_of(self._base):
            return _reply(self._request(method, url, content, headers))
        known = self._registry.auth.get_auth_header()
        first = self._request(method, url, content, headers | known)
        if first.status_code in (401, 403):
            sent = logged_in(self._registry, first, headers)
            if sent is not None:
                return _reply(self._request(method, url, content, sent))
        return _reply(first)

    def _request(
        self, method: str, url: str, content: Path | bytes, headers: dict[str, str]
    ) -> requests.Response:
        with ExitStack() as opened:
            data = (
                content if isinstance(content, bytes) else opened.enter_context(content.open("rb"))
            )
            response: requests.Response = self._registry.session.request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=(_CONNECTED_IN_S, _TAKEN_IN_S),
                allow_redirects=False,
                stream=True,
            )
            return response

    def _require(self, reply: _Reply, *statuses: int) -> None:
        """Raises ModelError with what to do."""
        if reply.status in statuses:
            return
        if reply.status in (401, 403):
            raise ModelError(
                f"{self.where}: the registry does not let this machine write there: `docker login`"
                " or `oras login` as this user, with an account that may push"
            )
        raise ModelError(f"{self.where}: the registry answers HTTP {reply.status}: {reply.text}")


def _reply(response: requests.Response) -> _Reply:
    with response:
        body = response.raw.read(_MOST_SAID, decode_content=True).decode(errors="replace")
    location = response.headers.get("Location", "")
    return _Reply(response.status_code, location, printable(" ".join(body.split())))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
