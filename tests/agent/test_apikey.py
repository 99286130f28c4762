"""The key of a node's models: made once, kept from everybody, refused when it is none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agent.state.apikey import keep_copy, node_key, sent_key
from reconciler.api.errors import StateError


def test_a_key_is_made_at_first_need_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "api-key"

    first, second = node_key(file), node_key(file)

    assert first == second
    assert len(first) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_persons_own_key_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("s3cret-key\n")
    file.chmod(0o640)

    assert node_key(file) == "s3cret-key"


@pytest.mark.parametrize("text", ["", "\n", "two words", "a,b", "one\ntwo", "schlüssel", "\x00"])
def test_a_file_without_a_key_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(StateError, match="holds no API key") as caught:
        node_key(file)

    assert not text.strip() or text not in str(caught.value)


def test_a_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text("s3cret")
    file.chmod(0o644)

    with pytest.raises(StateError, match="chmod 600"):
        node_key(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)

    with pytest.raises(StateError, match="folder: the API key cannot be read or made"):
        node_key(tmp_path / "folder")


def test_a_process_is_asked_with_the_key_that_it_was_started_with(tmp_path: Path) -> None:
    keep_copy(tmp_path / "copy", "older")

    assert sent_key(str(tmp_path / "copy")) == "older"
    assert sent_key(str(tmp_path / "gone")) is None
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
