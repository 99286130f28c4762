"""Repositories of a few kilobytes that say gigabytes."""

from __future__ import annotations

import hashlib
import subprocess
import zlib

from tests.support.repos import Repo, git_env


def nest_trees(repo: Repo, *, levels: int, width: int = 9, name_bytes: int = 240) -> None:
    """Commit a folder with `width` entries, all of them one folder that has `width` entries, ..."""
    at = repo.git("hash-object", "-w", "a.yaml")
    kind = "100644 blob"
    for _ in range(levels):
        rows = (f"{kind} {at}\t{n}{'x' * name_bytes}.yaml" for n in range(width))
        at, kind = _made(repo, "".join(f"{row}\n" for row in rows), "mktree"), "040000 tree"
    repo.git("reset", "-q", "--soft", repo.git("commit-tree", "-p", "HEAD", "-m", "change", at))
    repo.push()


def alternate_trees(repo: Repo, *, commits: int, names: int, name_bytes: int = 240) -> None:
    """Commit two folders in turn that have no file in common, then the files as they were."""
    blob = repo.git("hash-object", "-w", "a.yaml")
    whole = repo.git("rev-parse", "HEAD^{tree}")
    trees = [
        _made(
            repo,
            "".join(f"100644 blob {blob}\t{turn}{n:05}{'x' * name_bytes}\n" for n in range(names)),
            "mktree",
        )
        for turn in "ab"
    ]
    stream = "".join(
        f"commit refs/heads/main\ncommitter Ada <ada@example.com> {1_700_000_000 + n} +0000\n"
        + "data 1\nx\n"
        + ("from refs/heads/main^0\n" if n == 0 else "")
        + f'M 040000 {tree} ""\n\n'
        for n, tree in enumerate([*(trees[n % 2] for n in range(commits)), whole])
    )
    _made(repo, stream, "fast-import", "--quiet")
    repo.push()


def swell(repo: Repo, *, times: int) -> None:
    """Commit a file of `times` 16 MiB: a file of zeros, and a delta that copies it so often."""
    zeros = bytes(0xFFFFFF)
    base = hashlib.sha1(b"blob %d\0" % len(zeros) + zeros).digest()
    delta = _varint(len(zeros)) + _varint(len(zeros) * times) + b"\xf0\xff\xff\xff" * times
    pack = b"PACK" + (2).to_bytes(4) + (2).to_bytes(4)
    pack += _entry(3, len(zeros)) + zlib.compress(zeros)
    pack += _entry(7, len(delta)) + base + zlib.compress(delta)
    pack += hashlib.sha1(pack).digest()
    subprocess.run(
        ["git", "index-pack", "--stdin"], cwd=repo.work, env=git_env(), check=True, input=pack,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    whole = hashlib.sha1(b"blob %d\0" % (len(zeros) * times))
    for _ in range(times):
        whole.update(zeros)
    tree = _made(repo, f"100644 blob {whole.hexdigest()}\tx.yaml\n", "mktree")
    repo.git("reset", "-q", "--soft", repo.git("commit-tree", "-p", "HEAD", "-m", "change", tree))
    repo.push()


def _entry(kind: int, size: int) -> bytes:
    """How an object of a pack begins: its kind, and its size in 4 and then 7 bits at a time."""
    return bytes([kind << 4 | size & 15 | 128]) + _varint(size >> 4)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def _made(repo: Repo, stdin: str, *argv: str) -> str:
    done = subprocess.run(
        ["git", *argv], cwd=repo.work, env=git_env(), check=True, capture_output=True, text=True,
        input=stdin,
    )  # fmt: skip
    return done.stdout.strip()
