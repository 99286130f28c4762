"""Model states from a llama.cpp router's log, one child process each. Pure.

`GET /models` tells only that a load failed: the reason is in earlier lines with the child's port
(llama.cpp b11434).
"""

from __future__ import annotations

import re
from collections import defaultdict

from reconciler.runtimes.many import FailedLoad

_SPAWNED = re.compile(r"^[^\[].* spawning server instance with name=(\S+) on port (\d+)$")
_ENDED = re.compile(r"^[^\[].* instance name=(\S+) exited with status (-?\d+)$")
_CHILD = re.compile(r"^\[(\d+)\] (.*)$")
_LOADED = "llama_server: model loaded"


def failed_loads(log: str) -> dict[str, FailedLoad]:
    """The models whose last process ended by itself, by name. `log` is the end of one run."""
    owners: dict[str, str] = {}  # port -> model
    printed: defaultdict[str, list[str]] = defaultdict(list)
    times: defaultdict[str, int] = defaultdict(int)
    loaded: set[str] = set()
    failed: dict[str, FailedLoad] = {}
    for line in log.splitlines():
        if child := _CHILD.match(line):
            name = owners.get(child[1])
            if name is not None:
                printed[name].append(child[2])
                if child[2].endswith(_LOADED):
                    loaded.add(name)
                    times[name] = 0
                    failed.pop(name, None)
        elif spawned := _SPAWNED.match(line):
            name = spawned[1]
            owners[spawned[2]] = name
            printed[name].clear()
            loaded.discard(name)
        elif ended := _ENDED.match(line):
            name, code = ended[1], int(ended[2])
            if code == 0:  # it was asked to end
                failed.pop(name, None)
                continue
            times[name] += name not in loaded
            failed[name] = FailedLoad(times[name], code, "\n".join(printed[name]))
    return failed
