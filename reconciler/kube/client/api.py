"""The API of one cluster, as far as a reconciler needs it: plain JSON in and out.

No typed models: they drop the fields that they do not know, and cost ten times the decoding.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from reconciler.kube.client.answers import error_of, warning_text
from reconciler.kube.client.errors import Gone, NotFound, Overlong, Unreachable
from reconciler.kube.client.stream import IDLE_S, Watch
from reconciler.kube.client.transport import MOST_BYTES, ApiReply, ApiRequest, Stream, Transport
from reconciler.kube.json_text import from_json, to_json
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import MANAGER, Manifest, ObjectId, OwnedKind, id_of

if TYPE_CHECKING:
    from reconciler.kube.client.credentials import ClusterCredentials, Grant

TIMEOUT_S = 30.0
PAGE = 250  # objects; while they are decoded they take 20 KiB each, which a heap keeps
PAGE_BYTES = 2**22  # of their JSON; a page that is longer is asked for again in parts

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_JSON_PATCH = "application/json-patch+json"
_JSON = "application/json"
_MOST_WARNINGS = 100  # remembered, to log each once

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a list, each with apiVersion and kind, and the resourceVersion to watch
    from."""

    items: Sequence[dict[str, Any]]
    resource_version: str


class ApiServer:
    """One API server. Thread-safe; opens nothing before the first call. Every method raises
    ClusterError."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self._transport = transport
        self._warnings: dict[str, None] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, name: str, credentials: ClusterCredentials) -> ApiServer:
        return cls(name, Transport(name, credentials))

    def grant(self) -> Grant:
        """The server's address, its CA and our credentials. Raises AccessError."""
        return self._transport.grant()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The server's warnings so far, each once."""
        with self._lock:
            return tuple(self._warnings)

    def get(self, oid: ObjectId) -> dict[str, Any] | None:
        """None if it does not exist, also if its kind is not installed."""
        try:
            return self._call("GET", _path(oid), what=f"read {oid.label}")
        except NotFound:
            return None

    def list(self, kind: OwnedKind, *, selector: str = "", namespace: str = "") -> ObjectList:
        """All pages. NotFound: the kind is not installed."""
        for _ in range(3):
            try:
                pages = [*self.pages(kind, selector=selector, namespace=namespace)]
            except Gone:  # the pages are of one snapshot, which has expired
                continue
            items = [item for page in pages for item in page.items]
            return ObjectList(items, pages[-1].resource_version)
        raise Unreachable(f"cluster {self.name}: list {kind.plural}: too slow for its own pages")

    def pages(
        self, kind: OwnedKind, *, selector: str = "", namespace: str = ""
    ) -> Iterator[ObjectList]:
        """The same page by page, for callers that process one at a time. Gone: start over."""
        query = {"labelSelector": selector} if selector else {}
        what, limit = f"list {kind.plural}", PAGE
        while True:
            # Objects may have 1.5 MiB each, and all of a page are decoded at once.
            most = PAGE_BYTES if limit > 1 else MOST_BYTES
            try:
                page = self._call(
                    *("GET", kind.path(namespace), {**query, "limit": str(limit)}),
                    what=what,
                    packed=True,
                    most_bytes=most,
                )
            except Overlong:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            items = page.get("items") or []
            for item in items:
                item["apiVersion"], item["kind"] = kind.api_version, kind.kind  # lists omit it
            metadata = page["metadata"]
            yield ObjectList(items, metadata["resourceVersion"])
            del page, items  # free it before the next page comes
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    def apply(
        self,
        manifest: Manifest,
        *,
        manager: str = MANAGER,
        force: bool = False,
        dry_run: bool = False,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Server-side apply; returns the object afterwards. Conflict: another manager owns
        fields."""
        oid = id_of(manifest)
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        query |= {"force": "true"} if force else {}
        query |= {"dryRun": "All"} if dry_run else {}
        path = _path(oid, subresource)
        what = f"apply {oid.label}"
        return self._call("PATCH", path, query, manifest, _APPLY, what=what, repeatable=True)

    def patch(
        self,
        oid: ObjectId,
        operations: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        subresource: str = "",
        manager: str = MANAGER,
    ) -> dict[str, Any]:
        """JSON patch. Conflict: a `test` failed, or a path does not exist."""
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path = _path(oid, subresource)
        return self._call("PATCH", path, query, operations, _JSON_PATCH, what=f"patch {oid.label}")

    def create(self, manifest: Manifest, *, manager: str = MANAGER) -> dict[str, Any]:
        """Conflict: it exists already."""
        oid = id_of(manifest)
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        path = _path(oid._replace(name=""))
        return self._call("POST", path, query, manifest, what=f"create {oid.label}")

    def replace(
        self, manifest: Manifest, *, manager: str = MANAGER, subresource: str = ""
    ) -> dict[str, Any]:
        """PUT. Conflict: it was changed since the resourceVersion in the manifest."""
        oid = id_of(manifest)
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        path = _path(oid, subresource)
        return self._call("PUT", path, query, manifest, what=f"replace {oid.label}")

    def delete(self, oid: ObjectId, *, uid: str, propagation: str = "Background") -> None:
        """Delete exactly the object with that uid; no error if it is gone. Conflict: another object
        has its name."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid},
        }
        try:
            what = f"delete {oid.label}"
            self._call("DELETE", _path(oid), {}, options, what=what, repeatable=True)
        except NotFound:
            return

    def watch(
        self,
        kind: OwnedKind,
        *,
        selector: str,
        resource_version: str,
        namespace: str = "",
        timeout_s: float = 300,
        idle_s: float = IDLE_S,
    ) -> Watch:
        """Changes since `resource_version`, until the server ends the watch after `timeout_s`.

        Raises while reading: Gone (list again), Unreachable (broken off, or silent for `idle_s`);
        and at once if it cannot be started.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        query |= {"labelSelector": selector} if selector else {}
        what = f"watch {kind.plural}"
        head_s = min(TIMEOUT_S, idle_s)
        answer = self.stream(kind.path(namespace), query, what=what, timeout_s=head_s)
        return Watch(answer, idle_s, what, self.name)

    def stream(
        self, path: str, query: Mapping[str, str], *, what: str, timeout_s: float = TIMEOUT_S
    ) -> Stream:
        """The lines of an answer that may be endless; `timeout_s` is for its head."""
        request = ApiRequest("GET", _target(path, query), {}, repeatable=True)
        answer = self._transport.stream(request, timeout_s=timeout_s)
        if isinstance(answer, ApiReply):
            raise self._error(answer, what)
        self._warned(answer.warnings)
        return answer

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - whatever the API answers there
        """Any other request: parsed JSON if the response is JSON, else text."""
        what = f"{method} {path}"
        reply = self._send(method, path, query or {}, body, content_type, what, timeout_s=timeout_s)
        try:
            return from_json(reply.body)
        except ValueError:
            return reply.body.decode(errors="replace")

    def send(self, request: ApiRequest, *, timeout_s: float) -> ApiReply | Stream:
        """What comes of any request, as it comes; an ApiReply if its status is not 200. `timeout_s`
        is for the head of the response."""
        return self._transport.stream(request, timeout_s=timeout_s)

    def close(self) -> None:
        """Close idle connections; later calls open new ones."""
        self._transport.close()

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        *,
        what: str,
        repeatable: bool = False,
        packed: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> dict[str, Any]:
        reply = self._send(
            method,
            path,
            query or {},
            body,
            content_type,
            what,
            repeatable=repeatable,
            packed=packed,
            most_bytes=most_bytes,
        )
        try:
            answer = from_json(reply.body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(f"cluster {self.name}: {what}: no JSON; is that an API server's URL?")
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        content_type: str,
        what: str,
        *,
        repeatable: bool = False,
        packed: bool = False,
        most_bytes: int = MOST_BYTES,
        timeout_s: float = TIMEOUT_S,
    ) -> ApiReply:
        headers = {"Accept": _JSON}
        if body is not None:
            headers["Content-Type"] = content_type
        headers["Accept-Encoding"] = "gzip" if packed else "identity"
        data = None if body is None else to_json(body)
        request = ApiRequest(
            method,
            _target(path, query),
            headers,
            data,
            repeatable or method == "GET",
            most_bytes=most_bytes,
        )
        reply = self._transport.exchange(request, timeout_s=timeout_s)
        self._warned(reply.warnings)
        if not 200 <= reply.status < 300:
            raise self._error(reply, what)
        return reply

    def _error(self, reply: ApiReply, what: str) -> Exception:
        return error_of(reply.status, reply.body, reply.retry_after, what=what, cluster=self.name)

    def _warned(self, headers: Sequence[str]) -> None:
        for header in headers:
            text = warning_text(header)
            with self._lock:
                if text in self._warnings or len(self._warnings) >= _MOST_WARNINGS:
                    continue
                self._warnings[text] = None
            _log.warning("cluster %s warns: %s", self.name, text)


def _path(oid: ObjectId, subresource: str = "") -> str:
    kind = SERVED_KINDS[oid.group, oid.kind]
    path = kind.path(quote(oid.namespace, safe=""), quote(oid.name, safe=""))
    return f"{path}/{subresource}" if subresource else path


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
