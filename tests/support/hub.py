"""A Hugging Face Hub on loopback: its API, its resolve URLs, and its CDN on another port.

    with Hub({"org/repo": {"config.json": b"{}", "model.safetensors": weights}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)

It answers as the real one does: the API lists blobs with sizes and, of LFS files, their sha256;
LFS files are redirected to the CDN with X-Linked-Etag; refusals carry X-Error-Code.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tests.support.http import FileServer

COMMIT = "c" * 40
_LFS = (".safetensors", ".gguf", ".bin")


class Hub:
    """`repos`: name -> path -> bytes. `gated` and `private` name repositories; `readers` are the
    tokens that may read them."""

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repos = {name: dict(files) for name, files in repos.items()}
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.readers: set[str] = set()
        self.status: int | None = None  # the API answers so
        self.retry_after: str | None = None
        self.redirect_api_to: str | None = None
        self.wrong_sha256: set[str] = set()  # paths whose LFS digest is a lie
        self.requests: list[tuple[str, str | None]] = []  # path, Authorization
        self.cdn = FileServer(b"")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def resolved(self) -> list[str]:
        """The files that were asked for at the Hub, in order."""
        return [path.partition("/resolve/")[2] for path, _ in self.requests if "/resolve/" in path]

    def __enter__(self) -> Self:
        self.cdn.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.cdn.__exit__(kind, error, traceback)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            self.token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
            hub.requests.append((path, self.headers["Authorization"]))
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
                self._api(match[1], match[2])
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._resolve(match[1], match[3])
            elif match := re.fullmatch(r"/api/resolve-cache/models/([^/]+/[^/]+)/(.+)", path):
                self._bytes(hub.repos[match[1]][match[2]])
            else:
                self._refuse(404, "EntryNotFound")

        def _api(self, repo: str, revision: str) -> None:
            if hub.redirect_api_to is not None:
                self._head(307, {"Location": hub.redirect_api_to})
            elif hub.status is not None:
                self._head(hub.status, {"Retry-After": hub.retry_after})
            elif self._may_see(repo):
                if revision not in {"main", "v1", COMMIT}:
                    self._refuse(404, "RevisionNotFound")
                    return
                files = [_sibling(p, d, p in hub.wrong_sha256) for p, d in hub.repos[repo].items()]
                body = {"id": repo, "sha": COMMIT, "siblings": files, "gated": repo in hub.gated}
                self._bytes(json.dumps(body).encode(), "application/json")

        def _resolve(self, repo: str, path: str) -> None:
            if not self._may_see(repo):
                return
            if repo in hub.gated and self.token not in hub.readers:
                self._refuse(403 if self.token else 401, "GatedRepo")
            elif path not in hub.repos[repo]:
                self._refuse(404, "EntryNotFound")
            elif path.endswith(_LFS):
                data = hub.repos[repo][path]
                at = f"/files/{hashlib.sha256(data).hexdigest()}"
                hub.cdn.files[at] = data
                location = f"http://127.0.0.1:{hub.cdn.port}{at}?signature=secret"
                linked = {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"'}
                self._head(302, linked | {"Location": location, "X-Linked-Size": str(len(data))})
            else:
                self._head(307, {"Location": f"/api/resolve-cache/models/{repo}/{path}"})

        def _may_see(self, repo: str) -> bool:
            hidden = repo in hub.private and self.token not in hub.readers
            if repo in hub.repos and not hidden:
                return True
            self._refuse(404 if self.token else 401, "RepoNotFound")
            return False

        def _bytes(self, data: bytes, kind: str = "text/plain") -> None:
            tag = f'"{hashlib.sha1(data).hexdigest()}"'
            self._head(200, {"ETag": tag, "Content-Type": kind}, data)

        def _refuse(self, status: int, code: str) -> None:
            self._head(status, {"X-Error-Code": code, "X-Error-Message": code})

        def _head(self, status: int, headers: Mapping[str, str | None], data: bytes = b"") -> None:
            self.send_response(status)
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _sibling(path: str, data: bytes, lie: bool) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": blob}
    if path.endswith(_LFS):
        digest = "0" * 64 if lie else hashlib.sha256(data).hexdigest()
        entry["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
    return entry
