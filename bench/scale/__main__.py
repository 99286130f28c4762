from __future__ import annotations

from bench.scale import rows
from bench.table import show

if __name__ == "__main__":
    show(rows())
