"""The plan in README's picture: a real plan of a small fleet, of models whose headers are served on
loopback and say what those of real models say."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from reconciler.cli import main
from tests.pictures.terminal import picture
from tests.support.fleets import document, model, node, write_fleet
from tests.support.gguf_models import raw_header, raw_key, raw_tensor
from tests.support.repos import git_env
from tests.support.serving import Serving

COLUMNS = 92
_Q4, _Q6, _F32 = 12, 14, 0  # ggml's numbers
_BITS = {_Q4: 4.5, _Q6: 6.5625, _F32: 32}


def _header(name: str, layers: int, width: int, inner: int, kv_width: int) -> tuple[bytes, int]:
    """The beginning of a GGUF file of that shape, and how large the whole is."""
    vocabulary = 151936
    keys = {
        "general.architecture": "qwen3",
        "general.name": name,
        "qwen3.block_count": layers,
        "qwen3.context_length": 40960,
        "qwen3.embedding_length": width,
        "qwen3.feed_forward_length": inner,
        "qwen3.attention.head_count": width // 128,
        "qwen3.attention.head_count_kv": kv_width // 128,
        "qwen3.attention.key_length": 128,
        "qwen3.attention.value_length": 128,
        "qwen3.vocab_size": vocabulary,
        "tokenizer.chat_template": "{{ messages }}",
    }
    of_a_layer = {
        "attn_q": (width, width),
        "attn_k": (width, kv_width),
        "attn_v": (width, kv_width),
        "attn_output": (width, width),
        "ffn_gate": (width, inner),
        "ffn_up": (width, inner),
        "ffn_down": (inner, width),
    }
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd.weight": ((width, vocabulary), _Q4)
    }
    shapes |= {"output.weight": ((width, vocabulary), _Q6), "output_norm.weight": ((width,), _F32)}
    for layer in range(layers):
        shapes |= {f"blk.{layer}.{n}.weight": (dims, _Q4) for n, dims in of_a_layer.items()}
        shapes |= {f"blk.{layer}.{n}.weight": ((width,), _F32) for n in ("attn_norm", "ffn_norm")}
    tensors, offset = [], 0
    for tensor, (dims, kind) in shapes.items():
        tensors.append(raw_tensor(tensor.encode(), dims, kind, offset))
        count = dims[0] * (dims[1] if len(dims) > 1 else 1)
        offset += -(-int(count * _BITS[kind] / 8) // 32) * 32
    head = raw_header([raw_key(key, value) for key, value in keys.items()], tensors, data=b"")
    return head, len(head) + offset


class _Hub(Serving):
    """Hugging Face's, with files of which only the beginnings are ever asked for."""

    def __init__(self, models: Mapping[str, tuple[bytes, int]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._file(sends=False)

            def do_GET(self) -> None:
                if self.path.startswith("/api/models/"):
                    self._api()
                else:
                    self._file(sends=True)

            def _api(self) -> None:
                repository = self.path.removeprefix("/api/models/").partition("/revision/")[0]
                file, size = _file_of(repository), models[repository][1]
                lfs = {"sha256": _SHA256[repository], "size": size, "pointerSize": 134}
                listed = {"rfilename": file, "size": size, "blobId": "b" * 40, "lfs": lfs}
                body = json.dumps({"id": repository, "sha": "c" * 40, "siblings": [listed]})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def _file(self, *, sends: bool) -> None:
                head, size = models[self.path[1:].partition("/resolve/")[0]]
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "bytes=0-")
                assert asked is not None
                first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
                self.send_response(206 if self.headers.get("Range") else 200)
                self.send_header("Content-Length", str(last - first + 1))
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.send_header("ETag", '"1"')
                self.end_headers()
                if sends:
                    with contextlib.suppress(OSError):  # who has the header goes
                        self.wfile.write(head[first : last + 1])
                        for begin in range(max(first, len(head)), last + 1, len(_ZEROS)):
                            self.wfile.write(_ZEROS[: last + 1 - begin])

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.url = f"http://127.0.0.1:{self._server.server_port}"


_ZEROS = bytes(1 << 16)
_SIZES = {  # layers, width, inner width, of keys
    "Qwen/Qwen3-4B-GGUF": (36, 2560, 9728, 1024),
    "Qwen/Qwen3-8B-GGUF": (36, 4096, 12288, 1024),
    "Qwen/Qwen3-14B-GGUF": (40, 5120, 17408, 1024),
}
_SHA256 = {name: hashlib.sha256(name.encode()).hexdigest() for name in _SIZES}


def _file_of(repository: str) -> str:
    return f"{repository.removeprefix('Qwen/').removesuffix('-GGUF')}-Q4_K_M.gguf"


def _model(name: str, repository: str) -> str:
    source = f"hf://{repository}/{_file_of(repository)}"
    return model(name, source=source, sha256=_SHA256[repository])


def _service(name: str, of: str, where: str, context: int) -> str:
    spec = {"modelRef": of, "placement": {"nodes": [where]}, "contextSize": context}
    return document("InferenceService", name, spec)


_BEFORE = {
    "nodes/attic.yaml": node("attic", hardware={"memory": "48Gi"}),
    "nodes/mac-mini.yaml": node("mac-mini", hardware={"memory": "16Gi"}),
    "models/qwen3-4b.yaml": _model("qwen3-4b", "Qwen/Qwen3-4B-GGUF"),
    "models/qwen3-8b.yaml": _model("qwen3-8b", "Qwen/Qwen3-8B-GGUF"),
    "services/chat.yaml": _service("chat", "qwen3-8b", "attic", 8192),
    "services/draft.yaml": _service("draft", "qwen3-4b", "mac-mini", 8192),
}
_AFTER = {
    "models/qwen3-14b.yaml": _model("qwen3-14b", "Qwen/Qwen3-14B-GGUF"),
    "services/chat.yaml": _service("chat", "qwen3-8b", "attic", 32768),
    "services/code.yaml": _service("code", "qwen3-14b", "attic", 16384),
    "services/notes.yaml": _service("notes", "qwen3-8b", "mac-mini", 16384),
}


@contextlib.contextmanager
def _repository(hub: str) -> Iterator[Path]:
    """A work tree with two commits, `before` and now."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**git_env(), "XDG_CACHE_HOME": f"{folder}/cache", "HF_ENDPOINT": hub}
        env |= {"COLUMNS": str(COLUMNS), "TERM": "xterm", "FLEET_OFFLINE": ""}
        # With dates that are always the same commits have the same names.
        env |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-03-01T22:10:00Z")
        root = Path(folder) / "fleet"
        with mock.patch.dict(os.environ, env):
            os.environ.pop("NO_COLOR", None)
            for files, branch in ((_BEFORE, "before"), (_AFTER, "after")):
                write_fleet(root, files)
                for words in ("init -q", f"checkout -q -b {branch}", "add .", "commit -qm fleet"):
                    subprocess.run(("git", "-C", root, *words.split()), check=True)
            yield root


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plan_picture() -> str:
    """README's picture, as the program draws it today."""
    models = {name: _header(name, *shape) for name, shape in _SIZES.items()}
    with _Hub(models) as hub, _repository(hub.url) as folder, contextlib.chdir(folder):
        for _ in range(3):  # a header that is late on a busy machine is there the next time
            out = _Terminal()
            with contextlib.redirect_stdout(out):
                main(["plan", "--from", "before"])
            if "not known yet" not in out.getvalue():
                break
    prompt = "\x1b[32m$\x1b[0m \x1b[1mreconcile plan --from before\x1b[0m"
    return picture("reconcile plan", f"{prompt}\n{out.getvalue()}", COLUMNS)
