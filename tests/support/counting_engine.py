"""A stand-in for llama-server, by its own command line, that counts tokens when it is told to.

    engine = write_engine(tmp_path)                    # a program for Settings.programs
    tell(port, "/count/30")                            # 30 tokens were written
    tell(port, "/hang")                                # /metrics answers no more
    tell(port, "/load/NAME"), asked(port)              # as a router; what was asked of /metrics

In a chat it says what it was asked, and to "go on" it answers until nobody listens. `asked` has
both, the end as "left".

With `--models-preset` it is a router: a model counts for itself, and a scrape that does not say
`autoload=false` loads it. With LLAMA_API_KEY it asks for that key, but for its health.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

METRIC = "llamacpp:tokens_predicted_total"


def write_engine(folder: Path, *options: str) -> str:
    """A program in the folder that runs this file, with more options than it is given."""
    program = folder / "llama-server"
    words = " ".join((sys.executable, "-P", str(Path(__file__).resolve()), *options))
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    return str(program)


def tell(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"", method="POST")
    _answer(request)


def asked(port: int) -> list[str]:
    """The paths that were asked of /metrics."""
    paths: list[str] = _answer(urllib.request.Request(f"http://127.0.0.1:{port}/asked"))
    return paths


def _answer(request: urllib.request.Request) -> Any:
    from tests.support.wait import PATIENCE_S  # not for the engine, which finds no package of ours

    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, options: argparse.Namespace) -> None:
        self.names = _names(options)
        self.router = options.models_preset is not None
        self.loaded = {self.names[0]}
        self.tokens = dict.fromkeys(self.names, 0)
        self.hangs = threading.Event()
        self.asked: list[str] = []
        super().__init__((options.host, options.port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server, parts = self.server, urlsplit(self.path)
        key = os.environ.get("LLAMA_API_KEY")
        if key and parts.path != "/health" and self.headers["Authorization"] != f"Bearer {key}":
            return self._send(401, {"error": {"message": "Invalid API Key"}})
        match parts.path:
            case "/health":
                self._send(200, {"status": "ok"})
            case "/v1/models":
                self._send(200, {"data": [self._entry(name) for name in server.names]})
            case "/slots":
                self._send(200, [])
            case "/asked":
                self._send(200, server.asked)
            case "/metrics":
                self._metrics({k: v[0] for k, v in parse_qs(parts.query).items()})
            case _:
                self._send(404, {})
        return None

    def do_POST(self) -> None:
        server, (_, verb, *rest) = self.server, self.path.split("/")
        if self.path == "/v1/chat/completions":
            return self._chat()
        if verb == "count":
            server.tokens[rest[1] if len(rest) > 1 else server.names[0]] += int(rest[0])
        elif verb == "hang":
            server.hangs.set()
        elif verb == "load":
            server.loaded.add(rest[0])
        return self._send(200, {})

    def _chat(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self._piece(f"{body['model']} was asked: ")
            self._piece(question)
            while question == "go on":
                self._piece(" and on")
                time.sleep(0.01)
        except OSError:
            self.server.asked.append("left")
        self.close_connection = True

    def _piece(self, text: str) -> None:
        event = {"choices": [{"delta": {"content": text}}]}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _metrics(self, query: dict[str, str]) -> None:
        server = self.server
        server.asked.append(self.path)
        if server.hangs.is_set():
            time.sleep(3600)
        name = query.get("model", server.names[0])
        if server.router and name not in server.loaded:
            if query.get("autoload") == "false":
                return self._send(400, {"error": {"message": "model is not loaded"}})
            server.loaded.add(name)
        text = f"# TYPE {METRIC} counter\n{METRIC} {server.tokens[name]}\n{METRIC}_x 7\n"
        text += "llamacpp:requests_processing 3\n"
        return self._write(200, text.encode(), "text/plain")

    def _entry(self, name: str) -> dict[str, Any]:
        value = "loaded" if name in self.server.loaded else "unloaded"
        return {"id": name} | ({"status": {"value": value}} if self.server.router else {})

    def _send(self, status: int, document: Any) -> None:
        self._write(status, json.dumps(document).encode(), "application/json")

    def _write(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _names(options: argparse.Namespace) -> list[str]:
    if options.models_preset is None:
        return [options.alias]
    lines = Path(options.models_preset).read_text().splitlines()
    return [line[1:-1] for line in lines if line.startswith("[")]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias")
    parser.add_argument("--models-preset")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    options, _ = parser.parse_known_args()
    time.sleep(options.load_seconds)
    _Server(options).serve_forever()


if __name__ == "__main__":
    main()
