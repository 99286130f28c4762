"""Objects of a repository that somebody made by hand: trees, commits, damaged files of objects, and
bundles. SourceError, and no other.

The first byte of an input says which of them the rest is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from reconciler.api.errors import SourceError
from reconciler.source.bundle import BundleSource
from reconciler.source.commit import GitCheckout, YamlBlobs
from reconciler.source.mirror import Mirror
from tests.fuzz.target import Target
from tests.support.fleets import model, service
from tests.support.repos import Repo

_COMMIT_HEAD = b"author A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nx\n"
_BLOB = b"# inference.llmkube.dev/\n"


def _prepare(folder: Path) -> Callable[[bytes], None]:
    os.environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    mirror = Mirror(folder / "mirror.git")
    mirror.prepare("sha1")
    _loose(mirror.folder, "blob", _BLOB)
    kinds = (_of_tree, _of_commit, _of_damage, _of_bundle)

    def read(data: bytes) -> None:
        with contextlib.suppress(SourceError):
            kinds[data[0] % len(kinds) if data else 0](mirror, data[1:])

    return read


def _of_tree(mirror: Mirror, tree: bytes) -> None:
    _of_commit(mirror, b"tree " + _loose(mirror.folder, "tree", tree) + b"\n" + _COMMIT_HEAD)


def _of_commit(mirror: Mirror, commit: bytes) -> None:
    _read(mirror, _loose(mirror.folder, "commit", commit).decode())


def _of_damage(mirror: Mirror, raw: bytes) -> None:
    """The file of a blob that a good tree names."""
    content = b"# inference.llmkube.dev/ damaged\n"
    oid = _loose(mirror.folder, "blob", content)
    tree = b"100644 a.yaml\0" + bytes.fromhex(oid.decode())
    path = _place(mirror.folder, oid.decode())
    path.unlink()
    path.write_bytes(raw)
    try:
        _of_tree(mirror, tree)
    finally:
        path.unlink(missing_ok=True)


def _of_bundle(mirror: Mirror, data: bytes) -> None:
    file = mirror.folder.parent / "fleet.bundle"
    file.write_bytes(data)
    cache = mirror.folder.parent / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    checkout = BundleSource(file, cache_dir=cache).fetch()
    list(checkout.yaml_files())


def _read(mirror: Mirror, revision: str) -> None:
    checkout = GitCheckout(mirror, revision, YamlBlobs(mirror))
    paths = [file.path for file in checkout.yaml_files()]
    for path in paths[:5]:
        checkout.commit_of(path)
    for path in ("m.gguf", *paths[:2]):
        with contextlib.suppress(SourceError):
            checkout.model_file(path)
            checkout.folder(path)


def _loose(folder: Path, kind: str, content: bytes) -> bytes:
    """Write an object without asking git whether it is one; its id."""
    whole = f"{kind} {len(content)}\0".encode() + content
    oid = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    path = _place(folder, oid)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(zlib.compress(whole))
    return oid.encode()


def _place(folder: Path, oid: str) -> Path:
    return folder / "objects" / oid[:2] / oid[2:]


def _entry(mode: bytes, name: bytes) -> bytes:
    oid = hashlib.sha1(b"blob %d\0" % len(_BLOB) + _BLOB, usedforsecurity=False).digest()
    return mode + b" " + name + b"\0" + oid


def _seeds() -> Iterable[bytes]:
    file = _entry(b"100644", b"a.yaml")
    yield b"\0" + file + _entry(b"100755", b"b.yaml") + _entry(b"100644", b"m.gguf")
    for mode, name in (
        (b"120000", b"a.yaml"), (b"160000", b"a.yaml"), (b"40000", b"a.yaml"), (b"0", b"a.yaml"),
        (b"100644", b"../a.yaml"), (b"100644", b".git"), (b"100644", b""), (b"100644", b"\n.yaml"),
        (b"777777777777", b"a.yaml"), (b"100644", b"\xff.yaml"), (b"100644", b"x" * 5_000),
    ):  # fmt: skip
        yield b"\0" + file + _entry(mode, name)
    yield b"\0" + file * 1_000
    empty = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
    yield b"\1" + empty + _COMMIT_HEAD
    yield b"\1" + empty + b"parent 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n" * 20 + _COMMIT_HEAD
    yield b"\2" + zlib.compress(b"blob 5\0hello")
    yield b"\2" + zlib.compress(b"blob 999999999999\0hello")
    with TemporaryDirectory(prefix="fuzz-") as folder:
        repo = Repo.create(Path(folder))
        repo.publish({"m.yaml": model(), "s.yaml": service()})
        repo.git("bundle", "create", "-q", str(Path(folder) / "x.bundle"), "HEAD", "main")
        yield b"\3" + (Path(folder) / "x.bundle").read_bytes()


TARGET = Target(
    "gitobjects",
    _prepare,
    _seeds,
    pieces=(
        b"100644 a.yaml\0",
        b"40000 d\0",
        b"120000 ",
        b"160000 ",
        b"\0",
        b"..",
        b"/",
        b".git",
        b"tree ",
        b"parent ",
        b"author ",
        b"gpgsig ",
        b"\n",
        b"\1",
        b"\2",
        b"\3",
        b"PACK",
    ),
    memory_bytes=2**30,
)
