"""Write the pictures that the program draws."""

from __future__ import annotations

from pathlib import Path

from tests.pictures.plan import plan_picture

PICTURES = Path(__file__).parents[2] / "docs/pictures"

if __name__ == "__main__":
    (PICTURES / "plan.svg").write_text(plan_picture())
