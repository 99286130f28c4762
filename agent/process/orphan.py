"""A process of a service that no record knows any more: the records were lost, restored from a
copy, or cannot be read. It says itself whose it is: by its marker, and by the folder that it was
given, which names the state directory and the service.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from agent.process.identity import (
    identity_of,
    marker_of,
    process_ids,
    session_of,
    variable_of,
)
from agent.process.launch import Child, Launch
from agent.process.spawn import CONFIG_VARIABLE
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef


def orphan_of(state: StateDir, ref: ObjectRef) -> Child | None:
    """The process that an agent of this state directory started for a service, whatever the records
    say."""
    folder = str(state.workload_dir(ref))
    for pid in process_ids():
        if session_of(pid) != pid or variable_of(pid, CONFIG_VARIABLE) != folder:
            continue
        marker, identity = marker_of(pid), identity_of(pid)
        with contextlib.suppress(psutil.Error):
            if marker is not None and identity is not None:
                began = psutil.Process(pid).create_time()
                return Child(identity, marker, began, adopted=True)
    return None


def is_elsewhere(state: StateDir, pid: int) -> bool:
    """Whether a process was started from another state directory, which is still there: this one
    is a copy of it. One that was moved took its processes along."""
    folder = variable_of(pid, CONFIG_VARIABLE)
    if folder is None:
        return False
    try:
        return not Path(folder).parent.parent.samefile(state.root)
    except OSError:
        return False


def runs_as(launch: Launch, pid: int) -> bool:
    """Whether a process is what this launch would start: no other arguments, no other variables."""
    wanted = launch.command.argv[1:]
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        argv, actual = process.cmdline(), process.environ()
        same_argv = tuple(argv[len(argv) - len(wanted) :]) == wanted
        return same_argv and all(actual.get(k) == v for k, v in launch.command.env.items())
    return False
