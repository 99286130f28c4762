"""llama.cpp's own HTTP server in this process: `python -m agent.embedded <llama-server flags>`.

The same flags, endpoints, log lines and exit codes as `llama-server` has, out of the xllamacpp
wheel; we add no route. It serves one model. Exit codes: 0 after SIGTERM or SIGINT, 1 for anything
that keeps it from serving, which the last lines on stderr name. The module stays where it is: its
name is in the commands of services that run, and another one would restart them.

The wheel holds Python's lock while it loads and while it stops, so no Python code can react to a
signal then. Both signals keep their default meaning there: they end the process, which is what
llama-server does while it loads. /health is 200 some milliseconds before that changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence

import xllamacpp

from agent.engines.embedded_flags import FlagError, params_from

KEY_VARIABLE = "LLAMA_API_KEY"  # as llama-server has it; the runtimes' table is 20 MiB to import
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str]) -> int:
    """Serve until a signal comes. Returns the exit code."""
    _restore_defaults()
    try:
        params = params_from(argv)
    except FlagError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if key := os.environ.get(KEY_VARIABLE):
        params.api_keys = [key]
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, MemoryError):
        flush_log()  # it says why
        print("error: the server could not start", file=sys.stderr)
        return 1
    _wait_for_signal()
    _restore_defaults()
    del server  # frees the port and the model; waits for requests in flight, as llama-server does
    flush_log()
    return 0


def _wait_for_signal() -> None:
    """Sleep until SIGTERM or SIGINT, whichever thread of llama.cpp the kernel hands it to."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno())
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    print("serving until SIGTERM or SIGINT", file=sys.stderr, flush=True)
    ours.recv(1)


def flush_log() -> None:
    """llama.cpp writes its log in a thread of its own, for which the end of a process does not
    wait; llama-server ends with the same call. Without it a busy machine loses the last lines: so
    it may be with a wheel that does not export the call."""
    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    with contextlib.suppress(AttributeError):
        log, flush = library._Z15common_log_mainv, library._Z16common_log_flushP10common_log
        log.restype, flush.argtypes, flush.restype = ctypes.c_void_p, (ctypes.c_void_p,), None
        flush(log())


def _restore_defaults() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
