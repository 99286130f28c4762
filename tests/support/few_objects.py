"""An API server of a few objects: it lists by label, gets by name, and may deny or be broken.
The tests of what only reads need no more; what writes is tested with a real one (`cluster.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.objects import Manifest
from tests.support.serving import Serving

_REFUSED = 'User "somebody" cannot read that'


class FewObjects(Serving):
    def __init__(self, objects: Iterable[Manifest] = (), cluster: str = "prod") -> None:
        self.objects = list(objects)
        self.status = 200
        self.body: object = None  # in the place of every answer
        self.asked: list[tuple[str, str]] = []  # path, label selector
        self.texts: dict[str, bytes] = {}  # path and query -> such as a log
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))
        grant = Grant(f"http://127.0.0.1:{self._server.server_port}")
        self.api = ApiServer.of(cluster, ClusterCredentials(lambda: grant))

    def let_go(self) -> None:
        self.api.close()

    def answer(self, target: str) -> tuple[int, object]:
        url = urlsplit(target)
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        self.asked.append((url.path, selector))
        if self.status != 200 or self.body is not None:
            return self.status, self.body or {"kind": "Status", "message": _REFUSED}
        *_, plural, name = ("", *url.path.split("/"))
        for each in self.objects:
            if (_plural(each), each["metadata"]["name"]) == (plural, name):
                return 200, each
        found = [o for o in self.objects if _plural(o) == name and _has(o, selector)]
        if found or not plural.endswith("s") or plural == "apis":
            return 200, {"metadata": {"resourceVersion": "1"}, "items": found}
        return 404, {"kind": "Status", "message": "not found"}


def _plural(live: Manifest) -> str:
    return f"{live['kind'].lower()}s"


def _has(live: Manifest, selector: str) -> bool:
    labels = live["metadata"].get("labels") or {}
    key, among, names = selector.partition(" in ")
    if among:
        return labels.get(key) in names.strip("()").split(",")
    wanted = [word.partition("=") for word in selector.split(",") if word]
    return all(key in labels and (not is_equal or labels[key] == v) for key, is_equal, v in wanted)


def _handler(server: FewObjects) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = server.texts.get(self.path)
            status, document = (200, None) if text is not None else server.answer(self.path)
            body = json.dumps(document).encode() if text is None else text
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests say enough."""

    return Handler
