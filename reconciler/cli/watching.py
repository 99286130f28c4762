"""A folder that is watched: each change below it wakes the loop."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from reconciler.loop import Wake

_STILL_THERE_MS = 1000  # how often the watched folder is looked for
_REWATCH_S = 1.0

log = logging.getLogger(__name__)


def watch_files(folder: Path, wake: Wake, stop: threading.Event) -> None:
    """Wake the loop on every change below the folder; git's own bookkeeping says nothing.

    A folder that is taken away and put back is another folder: it is watched again from the start.
    """
    from watchfiles import watch

    while not stop.is_set():
        try:
            watched = folder.stat().st_ino
            changes = watch(
                folder,
                watch_filter=lambda _, path: "/.git/" not in path,
                debounce=50,
                step=20,
                rust_timeout=_STILL_THERE_MS,
                yield_on_timeout=True,
                stop_event=stop,
                raise_interrupt=False,
            )
            is_new = True
            for change in changes:
                if change or is_new:  # what changed before the watch began is not seen yet
                    wake.fetch()
                is_new = False
                if folder.stat().st_ino != watched:
                    break
        except OSError as error:
            log.debug("%s cannot be watched now: %s", folder, error)
        wake.fetch()
        stop.wait(_REWATCH_S)
