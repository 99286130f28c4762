"""An OCI registry on loopback: manifests, blobs, and the token dance of the real ones.

with Registry() as registry:
    reference = registry.push("team/m", {"config.json": b"{}"}, tag="1")
    ... f"oci://{registry.host}/{reference}" ...
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.serving import Serving

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_TITLE = "org.opencontainers.image.title"


class Registry(Serving):
    """`login`: "user:password" that it takes; `scheme`: how, `bearer` (a token from /token, which
    takes the login; one that is for reading does not write), `basic`, or "" for nobody asks."""

    def __init__(self) -> None:
        self.scheme = "bearer"
        self.login: str | None = None
        self.realm: str | None = None  # another place to get tokens from
        self.blobs_at: str | None = None  # blobs are redirected there
        self.uploads_at = ""  # files are to be sent there
        self.cut_after: int | None = None
        self.manifests: dict[str, bytes] = {}  # repository:tag or repository@digest
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None, str | None]] = []  # path, Authorization, Range
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def push(self, repository: str, files: Mapping[str, bytes], *, tag: str = "1") -> str:
        """What `oras push` leaves there: a layer a file. The reference below the host."""
        return self.put(repository, [_layer(data, title) for title, data in files.items()], tag)

    def put(self, repository: str, layers: list[tuple[dict[str, Any], bytes]], tag: str) -> str:
        for descriptor, data in layers:
            self.blobs[descriptor["digest"]] = data
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2},
                "layers": [descriptor for descriptor, _ in layers],
            }
        ).encode()
        self.manifests[f"{repository}:{tag}"] = manifest
        self.manifests[f"{repository}@sha256:{hashlib.sha256(manifest).hexdigest()}"] = manifest
        return f"{repository}:{tag}"


def layer(data: bytes, **more: Any) -> tuple[dict[str, Any], bytes]:
    """A descriptor and its bytes."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    base = {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}
    return base | more, data


def _layer(data: bytes, title: str) -> tuple[dict[str, Any], bytes]:
    return layer(data, annotations={_TITLE: title})


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            digest = self.path.rpartition("/")[2]
            if not self._may(self.headers["Authorization"], "pull"):
                self._challenge("pull")
            else:
                self._head(200 if digest in registry.blobs else 404, {}, b"")

        def do_POST(self) -> None:
            """The beginning of an upload, whose place is elsewhere in the same registry."""
            if not self._may(self.headers["Authorization"], "push"):
                self._challenge("push")
            else:
                self._head(202, {"Location": f"{registry.uploads_at}/uploads/7?state=x"}, b"")

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            path, _, query = self.path.partition("?")
            if not self._may(self.headers["Authorization"], "push"):
                self._challenge("push")
            elif match := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
                registry.manifests[f"{match[1]}:{match[2]}"] = data
                digest = hashlib.sha256(data).hexdigest()
                registry.manifests[f"{match[1]}@sha256:{digest}"] = data
                self._head(201, {}, b"")
            else:
                (digest,) = parse_qs(query)["digest"]
                is_it = digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
                registry.blobs |= {digest: data} if is_it else {}
                self._head(201 if is_it else 400, {}, b"" if is_it else b"DIGEST_INVALID")

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            told = self.headers["Authorization"]
            registry.requests.append((path, told, self.headers["Range"]))
            if path == "/token":
                self._token(told)
            elif not self._may(told, "pull"):
                self._challenge("pull")
            elif match := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
                mark = "@" if match[2].startswith("sha256:") else ":"
                self._send(registry.manifests.get(f"{match[1]}{mark}{match[2]}"), MANIFEST)
            elif match := re.fullmatch(r"/v2/(.+)/blobs/(sha256:.+)", path):
                if registry.blobs_at:
                    self._head(307, {"Location": f"{registry.blobs_at}/files/{match[2]}"}, b"")
                else:
                    self._blob(registry.blobs.get(match[2]))
            else:
                self._send(None, "")

        def _token(self, told: str | None) -> None:
            if registry.login and told != _basic(registry.login):
                self._head(401, {}, b"{}")
            else:
                writes = "push" in parse_qs(urlsplit(self.path).query).get("scope", [""])[0]
                token = "a-token-to-push" if writes else "a-token"
                self._send(json.dumps({"token": token}).encode(), "application/json")

        def _may(self, told: str | None, do: str) -> bool:
            if registry.scheme == "bearer":
                tokens = {"pull": ("a-token", "a-token-to-push"), "push": ("a-token-to-push",)}
                return told in [f"Bearer {token}" for token in tokens[do]]
            return not registry.scheme or told == _basic(registry.login or ":")

        def _challenge(self, do: str) -> None:
            realm = registry.realm or f"http://{registry.host}/token"
            scope = "pull,push" if do == "push" else "pull"
            how = f'Bearer realm="{realm}",service="r",scope="repository:x:{scope}"'
            text = how if registry.scheme == "bearer" else 'Basic realm="Registry"'
            self._head(401, {"Www-Authenticate": text}, b"")

        def _blob(self, data: bytes | None) -> None:
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
            if data is None or match is None:
                self._send(data, "application/octet-stream", registry.cut_after)
                return
            start = int(match[1])
            end = min(int(match[2]) + 1, len(data)) if match[2] else len(data)
            length = f"bytes {start}-{end - 1}/{len(data)}"
            self._head(206, {"Content-Range": length}, data[start:end])

        def _send(self, data: bytes | None, kind: str, cut: int | None = None) -> None:
            if data is None:
                self._head(404, {}, b"{}")
            else:
                self._head(200, {"Content-Type": kind}, data, cut)

        def _head(
            self, status: int, headers: Mapping[str, str], data: bytes, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:cut])

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _basic(login: str) -> str:
    return f"Basic {b64encode(login.encode()).decode()}"
