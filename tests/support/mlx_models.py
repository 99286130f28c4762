"""Model folders for tests that mlx-lm loads and answers with.

folder = tiny_mlx(tmp_path / "a")              # 300 KB: a llama with random, seeded weights
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.doctor.tiny import write_mlx

PROGRAM = Path(sys.executable).parent / "mlx_lm.server"


def tiny_mlx(folder: Path, *, seed: int = 0) -> Path:
    """Write the folder and return it; equal arguments give equal bytes."""
    return write_mlx(folder, seed)
