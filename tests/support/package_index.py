"""A package index on loopback, as PEP 503 has it, that counts what it sends.

    with PackageIndex(folder_of_wheels) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        assert index.sent("tiny") < 100_000

Switches may be turned while it runs.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import zipfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.serving import Serving

_CHUNK = 1 << 16
_PAUSE_AFTER = 1 << 20


class PackageIndex(Serving):
    """Serves each `.whl` of a folder. `says_metadata`: as PEP 658 has it. `wants_login`: a file is
    for who sends any Authorization; the pages are for everybody."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says_metadata = True
        self.honours_ranges = True
        self.wants_login = False
        self.pause_s = 0.0  # after each 64 KiB of a file, from its second MiB on
        self.go_on = threading.Event()  # cleared: no page comes
        self.go_on.set()
        self.requests: list[tuple[str, dict[str, str]]] = []  # (path, headers)
        self._sent: Counter[str] = Counter()  # by path
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple"

    def sent(self, name: str) -> int:
        """Bytes of a package's files, metadata included."""
        return sum(n for path, n in self._sent.items() if f"/files/{name}-" in path)

    def let_go(self) -> None:
        self.go_on.set()


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            index.requests.append((self.path, dict(self.headers.items())))
            if self.path.startswith("/simple/"):
                index.go_on.wait()
                self._answer(_page(index, self.path.split("/")[2]), "text/html")
                return
            file = index.folder / self.path.rpartition("/")[2].removesuffix(".metadata")
            if not file.is_file():
                self._head(404, {"Content-Length": "0"})
            elif index.wants_login and "Authorization" not in self.headers:
                self._head(401, {"Content-Length": "0"})
            elif self.path.endswith(".metadata"):
                self._answer(_metadata(file), "text/plain")
            else:
                self._file(file.read_bytes())

        def _file(self, data: bytes) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
            headers = {"Accept-Ranges": "bytes"} if index.honours_ranges else {}
            if asked is None or not index.honours_ranges:
                self._answer(data, "application/zip", headers)
                return
            start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
            headers |= {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
            self._answer(data[start:end], "application/zip", headers, 206)

        def _answer(
            self, body: bytes, kind: str, headers: dict[str, str] | None = None, status: int = 200
        ) -> None:
            length = {"Content-Type": kind, "Content-Length": str(len(body))}
            self._head(status, length | (headers or {}))
            for at in range(0, len(body) if self.command == "GET" else 0, _CHUNK):
                try:
                    self.wfile.write(body[at : at + _CHUNK])
                except ConnectionError:  # the client has seen enough
                    return
                index._sent[self.path] += len(body[at : at + _CHUNK])
                if at >= _PAUSE_AFTER:
                    time.sleep(index.pause_s)

        def _head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _page(index: PackageIndex, name: str) -> bytes:
    lines = ["<!doctype html>"]
    for file in sorted(index.folder.glob(f"{name.replace('-', '_')}-*.whl")):
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        metadata = hashlib.sha256(_metadata(file)).hexdigest()
        more = f' data-core-metadata="sha256={metadata}"' if index.says_metadata else ""
        lines.append(f'<a href="/files/{file.name}#sha256={sha256}"{more}>{file.name}</a>')
    return "\n".join(lines).encode()


def _metadata(file: Path) -> bytes:
    with zipfile.ZipFile(file) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        return wheel.read(name)
