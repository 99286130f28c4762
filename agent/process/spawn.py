"""Start a process so that it outlives us and inherits only what we give it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agent.process.identity import MARKER_VARIABLE
from agent.process.launch import Launch
from agent.process.logs import open_log
from agent.state.apikey import keep_copy, node_key
from agent.state.directory import StateDir
from reconciler.api.errors import ApplyError, EngineError, error_text
from reconciler.api.vendors import VENDORS
from reconciler.atomic import atomic_write

CONFIG_VARIABLE = "XDG_CONFIG_HOME"  # of a child: its own folder, below the state directory

# Everything that a child inherits. LLAMA_ARG_* and the user's configuration would change what runs.
INHERITED = (
    "DYLD_LIBRARY_PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
    "VK_ICD_FILENAMES",
    *(variable for row in VENDORS.values() for variable in row.variables),
)


def spawn(launch: Launch, marker: str, state: StateDir, environ: Mapping[str, str]) -> int:
    """Start the process in a session of its own and return its pid; the caller reaps it.

    EngineError if the program is missing or may not run, ApplyError if the service's directory,
    files or log cannot be written.
    """
    directory = state.workload_dir(launch.ref)
    try:
        write_files(directory, launch.command.files)
        _make_links(directory, launch.command.links)
        secrets = _secrets(launch, state)
        log = open_log(state.log_file(launch.ref), marker)
    except (OSError, ValueError) as error:
        raise ApplyError(launch.ref, f"its files cannot be written: {error_text(error)}") from error
    try:
        child = subprocess.Popen(
            launch.command.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=_environment(launch, marker, directory, environ) | secrets,
            start_new_session=True,
            close_fds=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in an argument
        program = launch.command.argv[0]
        why = error_text(error, program)
        raise EngineError(f"{program} cannot be run: {why}; install it or give its path") from error
    finally:
        os.close(log)
    child.returncode = 0  # the owner reaps it by pid; keeps Popen from trying to, and from warning
    return child.pid


def inherited(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of our environment that a child may see."""
    return {name: environ[name] for name in INHERITED if name in environ}


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files of a command into its service's directory. OSError; ValueError for a bad
    name."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        atomic_write(_inside(directory, name), text.encode())


def _make_links(directory: Path, links: Mapping[str, str]) -> None:
    """Fill a folder with links, and remove those of an earlier launch: each is a name that a client
    could ask the process for."""
    for entry in directory.iterdir():
        if entry.is_symlink():
            entry.unlink()
        elif entry.is_dir() and all(part.is_symlink() for part in entry.iterdir()):
            shutil.rmtree(entry)
    for name, target in links.items():
        place = _inside(directory, name)
        if not os.path.isdir(target):
            place.symlink_to(target)
            continue
        place.mkdir()
        for part in os.listdir(target):
            (place / part).symlink_to(Path(target, part))


def _inside(directory: Path, name: str) -> Path:
    if name != Path(name).name or name in (".", ".."):
        raise ValueError(f"{name!r} is not a plain file name")
    return directory / name


def _secrets(launch: Launch, state: StateDir) -> dict[str, str]:
    """Environment variables that may not be in a record. StateError if the key is missing."""
    place = launch.command.key
    if place is None:
        return {}
    key = node_key(state.api_key)
    keep_copy(Path(place.file), key)
    return {place.variable: key}


def _environment(
    launch: Launch, marker: str, directory: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    return {
        **inherited(environ),
        CONFIG_VARIABLE: str(directory),
        **launch.command.env,
        MARKER_VARIABLE: marker,
    }
