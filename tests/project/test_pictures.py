"""Pictures of the documentation: they show what the programs do today."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.pictures.plan import plan_picture

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def test_readmes_plan_is_what_the_program_prints_today() -> None:
    """`make pictures` draws it anew."""
    assert (ROOT / "docs/pictures/plan.svg").read_text() == plan_picture()


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_a_picture_is_small_says_what_it_shows_and_is_on_a_page(file: Path) -> None:
    root = ET.parse(file).getroot()
    name = "{http://www.w3.org/2000/svg}"
    on_a_page = re.compile(rf"!\[[^\]]{{20,}}\]\((docs/)?pictures/{re.escape(file.name)}\)")

    assert file.stat().st_size < 40_000
    assert root.findtext(f"{name}title")
    assert root.findtext(f"{name}desc")
    assert "http" not in file.read_text().replace("http://www.w3.org/2000/svg", "")
    assert any(on_a_page.search(page.read_text()) for page in PAGES)
