"""A tiny model server with bad manners on demand, run as a real child process.

    python servers.py --port 8080 --alias m --load-seconds 0.2 --busy

It answers as llama.cpp does: 503 on every path while loading, then /health, /v1/models and /slots.
`GET /environ`, `/cwd` and `/argv` show what it was given; `POST /busy/N` sets the busy slots.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve()


def argv(port: int, *options: str, alias: str = "tiny") -> tuple[str, ...]:
    """The command that starts this server (-P: its neighbours must not hide the stdlib)."""
    return (sys.executable, "-P", str(SCRIPT), "--port", str(port), "--alias", alias, *options)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    options: argparse.Namespace
    ready_at = 0.0


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        options = self.server.options
        if time.monotonic() < self.server.ready_at:
            self._send({"error": {"message": "Loading model"}}, 503)
        elif self.path == "/health":
            failing = options.fail_health and Path(options.fail_health).exists()
            self._send({"status": "ok"}, 500 if failing else 200)
        elif self.path == "/v1/models":
            entry: dict[str, Any] = {"id": options.alias}
            if options.model_status:
                entry["status"] = json.loads(options.model_status)
            self._send({"data": [entry]})
        elif self.path == "/slots":
            busy = options.busy
            self._send([{"id": n, "is_processing": n < busy} for n in range(max(busy, 2))])
        elif self.path == "/props" and options.props:
            self._send(json.loads(options.props))
        elif self.path == "/environ":
            self._send(dict(os.environ))
        elif self.path == "/cwd":
            self._send(os.getcwd())
        else:
            self._send({"error": {"message": "not found"}}, 404)

    def do_POST(self) -> None:
        self.server.options.busy = int(self.path.rpartition("/")[2])
        self._send({})

    def _send(self, document: Any, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    options = _parse()
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.print:
        print(options.print, flush=True)
    if options.spam:
        print("\n".join(f"line {n}" for n in range(options.spam)), flush=True)
    if options.exit_code is not None and options.die_after is None:
        sys.exit(options.exit_code)
    if options.child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(options.child).write_text(str(child.pid))
    server = _Server(("127.0.0.1", options.port), _Handler)
    server.options = options
    server.ready_at = time.monotonic() + options.load_seconds
    if options.die_after is not None:
        code = options.exit_code or 0
        threading.Timer(options.die_after, os._exit, (code,)).start()
    server.serve_forever()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias", default="tiny")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--die-after", type=float, help="seconds; then exit with --exit-code")
    parser.add_argument("--exit-code", type=int, help="without --die-after: exit at once")
    parser.add_argument("--print", help="one line to log first")
    parser.add_argument("--spam", type=int, default=0, help="lines to log first")
    parser.add_argument("--busy", type=int, default=0, help="slots that are processing")
    parser.add_argument("--model-status", help="JSON: status of the model, as a router lists it")
    parser.add_argument("--props", help="JSON: the settings as they turned out to be")
    parser.add_argument("--fail-health", help="/health is 500 while this file exists")
    parser.add_argument("--child", help="start a child and write its pid to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
