"""The estimate against llama.cpp's own allocation: `python -m bench.memory [MODEL ...]`.

Files with the true shapes of real models and no weights in them, some settings each. `-v` names the
worst combinations. `python -m bench.memory.live` starts real servers.
"""

from __future__ import annotations

import sys

from bench.memory.comparison import compared
from bench.memory.offload import placed
from bench.memory.table import show, show_placed, worst, worst_placed

if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    found = tuple(compared(names))
    show(found)
    on_devices = tuple(placed(names))
    show_placed(on_devices)
    if "-v" in sys.argv:
        worst(found)
        worst_placed(on_devices)
