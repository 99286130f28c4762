"""Why a process ended, from its exit status and the end of its log. Pure.

The patterns are messages of llama.cpp (b11434) and of servers that use argparse.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a process ended: a CamelCase reason, and a sentence that says what to do."""

    reason: str
    message: str


# The same start would fail the same way, so it is retried only after the longest pause.
PERMANENT = frozenset({"ModelMissing", "ModelCorrupt", "ModelUnsupported", "BadFlag"})

# Reasons of a wait for bytes that this node has not verified.
UNVERIFIED = frozenset({"ModelGone", "ModelUnavailable", "DownloadFailed", "DiskFull"})

# Reasons for which a process is not started by any plan either.
NOT_TO_RUN = frozenset({"StoppedByHand", "Suspended", "NotRendered", "ProcessGone"})

# Nothing was started, so a retry costs nothing; and no event tells when the cause is gone.
REFUSED = frozenset(
    {
        *("MemoryFits", "PortInUse", "WaitsForPort", "HostIPNotLocal"),
        *("StateUnwritable", "KeyUnusable", "EngineMissing"),
        *UNVERIFIED,
        *NOT_TO_RUN,
    }
)

# A service that waits for one of these reasons has no memory.
NEVER_STARTED = frozenset({"MemoryFits", *NOT_TO_RUN})

# Log patterns, with the reason and the advice. The first row that matches any line wins.
_TELLTALES = tuple(
    (re.compile(pattern, re.IGNORECASE), reason, advice)
    for pattern, reason, advice in (
        (
            r"couldn't bind|address already in use|\[Errno (98|48)\]",
            "PortInUse",
            "another program took the port first; see which with `lsof -i` or `ss -ltnp`",
        ),
        (
            r"failed to open GGUF file|model .*(not found|does not exist)|no such file.*\.gguf",
            "ModelMissing",
            "the model file is not there, or may not be read by this user",
        ),
        (
            r"failed to read magic|invalid magic|failed to read key-value"
            r"|not within the file bounds|corrupted or incomplete|failed to read tensor"
            r"|SafetensorError",
            "ModelCorrupt",
            "the model file is damaged or incomplete: remove it and fetch it again",
        ),
        (
            r"unknown model architecture|unsupported model|Model type .* not supported",
            "ModelUnsupported",
            "this engine is too old for the model, or cannot run it: upgrade the engine",
        ),
        (
            r"insufficient memory|failed to allocate|unable to allocate|bad_alloc|out of memory"
            r"|cudaMalloc failed|ErrorOutOfDeviceMemory|MemoryError",
            "OutOfMemory",
            "lower contextSize, parallelSlots or promptCache, or use a smaller quantisation",
        ),
        (
            r"quantized V cache requires|does not support different K",
            "BadFlag",
            "these settings exclude each other: correct the service's fields",
        ),
        (  # the embedded engine ends with a line of its own, which proves nothing
            r"^error: (?!the server could not start)|error while handling argument"
            r"|unrecognized arguments|unknown argument",
            "BadFlag",
            "the engine refuses its arguments: correct the service's fields or extraArgs",
        ),
    )
)

_USUAL_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_LONGEST_LINE = 300
_STAMP = re.compile(r"^[\d.]+ [DIWE] ")  # llama.cpp's time and level


def classify(status: int | None, tail: str, *, oom_kills: int = 0) -> Reason:
    """The reason of an exit that we did not cause.

    `status` is the exit code, or minus the signal's number; None for an adopted process, whose
    status only its parent gets. `tail` is the end of this run's log; `oom_kills` is how many
    processes the kernel OOM-killed meanwhile.
    """
    if status is not None and status < 0:
        return _by_signal(-status, tail, oom_kills)
    reason = _from_log(tail)
    if reason is not None:
        return reason
    last = _last_line(tail)
    if status is None:
        if oom_kills > 0:
            return Reason("OutOfMemory", "gone while the kernel killed for lack of memory")
        return Reason("Exited", f"gone; its exit code is not known{last}")
    if status == 0:
        return Reason("Exited", f"ended by itself with exit code 0{last}")
    return Reason("Crashed", f"exit code {status}{last}")


def _by_signal(number: int, tail: str, oom_kills: int) -> Reason:
    name = _signal_name(number)
    if number == signal.SIGKILL:
        if oom_kills > 0:
            return Reason(
                "OutOfMemory",
                f"killed by the kernel for lack of memory ({name}); lower contextSize or the"
                " number of services here",
            )
        return Reason("KilledBySignal", f"killed by {name}, which this program did not send")
    if number in _USUAL_STOP_SIGNALS:
        return Reason("KilledBySignal", f"ended by {name}, which this program did not send")
    if number == signal.SIGBUS:
        return Reason(
            "ModelCorrupt", f"killed by {name}: the model file was cut while it was in use"
        )
    return _from_log(tail) or Reason(
        "KilledBySignal", f"the engine crashed with {name}{_last_line(tail)}"
    )


def _from_log(tail: str) -> Reason | None:
    lines = tail.splitlines()
    for pattern, reason, advice in _TELLTALES:
        for line in reversed(lines):
            if pattern.search(line):
                return Reason(reason, f"{_clean_line(line)} ({advice})")
    return None


def _last_line(tail: str) -> str:
    for line in reversed(tail.splitlines()):
        if text := _clean_line(line):
            return f"; its last line: {text}"
    return "; it logged nothing"


def _clean_line(line: str) -> str:
    return one_line(_STAMP.sub("", line))


def one_line(text: str) -> str:
    """One printable line of limited length: logs contain strings from model files."""
    clean = "".join(char if char.isprintable() else " " for char in text).strip()
    return clean if len(clean) <= _LONGEST_LINE else clean[: _LONGEST_LINE - 1] + "…"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
