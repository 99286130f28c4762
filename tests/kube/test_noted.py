"""What an inventory notes of the commit that is followed, read as if anybody had written it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.kube.inventory import followed_of, parent
from reconciler.source.history import NotedRevision

COMMIT = "4f" * 20
NOTED = NotedRevision(
    "home", "https://git.test/fleet", "HEAD", COMMIT, "https://git.test/fleet", ""
)


def test_what_was_noted_is_read_again() -> None:
    assert followed_of(parent("home", (), None, followed=NOTED)) == NOTED
    assert followed_of(parent("home", (), "abc", followed=NOTED)) == NOTED


@pytest.mark.parametrize(
    "told",
    [
        "",
        "[]",
        "{}",
        "[" * 10_000,
        json.dumps({"revision": "--upload-pack=sh"}),
        json.dumps({"revision": f"{COMMIT}:refs/heads/main"}),
        json.dumps({"revision": f"{COMMIT}\n"}),
        json.dumps({"revision": COMMIT[:12]}),
        json.dumps({"revision": [COMMIT]}),
    ],
)
def test_only_the_id_of_a_commit_is_taken_from_an_inventory(told: str) -> None:
    assert followed_of(parent("home", (), None) | {"data": {"followed": told}}) is None


@pytest.mark.parametrize("at", ["soon", None, True, [1], -1e300])
def test_a_time_that_makes_no_sense_stops_nothing(at: Any) -> None:
    told = json.dumps({"revision": COMMIT, "location": 7, "notedAt": at})

    found = followed_of(parent("home", (), None) | {"data": {"followed": told}})

    assert found is not None
    assert (found.revision, found.location) == (COMMIT, "7")
