"""The other side of `forked.py`: it has imported everything, and forks for each request.

It has no threads, reads nothing of a fleet, and is gone when its worker is. A child takes over
arguments, environment, working directory and standard streams, calls the program's entry point and
ends as a program ends; here it is reaped, and its exit code told.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from reconciler.api.kinds import KINDS
from reconciler.cli import parser_of
from reconciler.cli.commands import COMMANDS
from reconciler.source.validators import validator
from tests.support.forked import FOLDER, PROGRAMS, READY

_APART = (  # what is a process of its own, and what brings threads
    "reconciler.__main__",
    "agent.embedded",
    "agent.doctor",
    "reconciler.models.hf_hub",
    "reconciler.models.oci_registry",
)
_LAZY = ("orjson", "psutil", "ryaml", "jsonschema_rs", "ruamel.yaml", "urllib3", "urllib.request")
_STREAMS = 3


def _import_everything() -> None:
    for root in ("reconciler", "agent"):
        for module in pkgutil.walk_packages(importlib.import_module(root).__path__, f"{root}."):
            if not module.name.startswith(_APART):
                importlib.import_module(module.name)
    for name in _LAZY:
        importlib.import_module(name)
    _build_models(BaseModel)
    _build_tables()
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # shared pages stay shared


def _build_models(model: type[BaseModel]) -> None:
    """What a program builds when it needs it, from its code alone."""
    for each in model.__subclasses__():
        each.model_rebuild()
        _build_models(each)


def _build_tables() -> None:
    """What takes a command as long as reading a small fleet, and is the same for every one."""
    for kind in KINDS:
        validator(kind)
    for command in (None, *COMMANDS):
        parser_of(command)  # its expressions are compiled once
    "localhost".encode("idna")


def _serve(control: socket.socket) -> list[int]:
    """Fork for each request, until nobody can ask any more. Returns in each child, with what came
    with the request: its standard streams, and a file that says what to run."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    control.send(READY)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(running)
        if control not in ready:
            continue
        word, files, _, _ = socket.recv_fds(control, 1, _STREAMS + 2)
        if not word:
            os._exit(0)
        report = files.pop()
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.detach()
            return files
        os.write(report, f"{pid}\n".encode())
        running[pid] = report
        for file in files:
            os.close(file)


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        report = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(report)


def _become(files: list[int]) -> Callable[[], int]:
    """Be the process that the request describes; its entry point."""
    with open(files[-1], closefd=False) as file:
        request = json.load(file)
    for number in range(_STREAMS):
        os.dup2(files[number], number)
    os.closerange(_STREAMS, max(files) + 1024)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.path[0] = str(FOLDER)
    main: Callable[[], int] = importlib.import_module(PROGRAMS[Path(sys.argv[0]).name]).main
    return main


def _end_with(main: Callable[[], int]) -> None:
    """Call it and end. All but one thing that Python does at its end: taking down a heap of
    everything costs 50 ms."""
    code = 1
    try:
        code = main()
    except Exception:  # noqa: BLE001 - as Python does
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _import_everything()
    _end_with(_become(_serve(socket.socket(fileno=int(sys.argv[1])))))
