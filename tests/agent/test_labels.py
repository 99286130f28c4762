"""What a node is labelled with, for machines as their drivers and kernels answer."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from agent.cli import main as agent_main
from agent.labels.deciding import decide
from agent.labels.facts import DriverHangs, Facts, FactsReader
from agent.labels.vendors import VENDOR_LABELS
from reconciler.api.plain_json import parse_json
from reconciler.api.vendors import VENDORS
from tests.support.machines import case, case_names
from tests.support.wait import wait_for


@pytest.mark.parametrize("name", case_names())
def test_a_machine_becomes_the_labels_of_its_case(name: str, tmp_path: Path) -> None:
    machine = case(name, tmp_path)

    found = decide(machine.facts(), machine.labels_of_others)

    assert found.labels.labels("") == machine.labels
    assert found.annotations("") == machine.annotations


@pytest.mark.parametrize(
    ("vendor", "arch", "has"),
    [("NVIDIA", "sm_60", False), ("NVIDIA", "sm_61", True), ("NVIDIA", "sm_62", False),
     ("NVIDIA", "sm_120", True), ("NVIDIA", "12.0", None), ("AMD", "gfx1010", False),
     ("AMD", "gfx1030", True), ("AMD", "gfx9999", None), ("Apple", None, True)],
)  # fmt: skip
def test_weights_of_four_bits_are_quick_where_bytes_are_multiplied_at_once(
    vendor: str, arch: str | None, has: bool | None
) -> None:
    assert VENDOR_LABELS[vendor].int4(arch) is has


def test_every_vendor_has_a_row_of_labels() -> None:
    assert VENDOR_LABELS.keys() == VENDORS.keys()


def test_labels_are_printed_as_json_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = case("mi300x", tmp_path).labels

    where = ("--host-root", str(tmp_path), "--label-prefix", "gpu.example", "--node", "worker-3")
    code = agent_main(["label", "--print", *where])

    printed = parse_json(capsys.readouterr().out)
    assert code == 0
    assert printed["node"] == "worker-3"
    assert printed["labels"] == {f"gpu.example/{key}": text for key, text in expected.items()}
    assert printed["annotations"] == {"gpu.example/gpu.vram-mib": "196592"}


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("Not A Name/", "write a name as of a domain"),
        ("a/b/", "write a name as of a domain"),
        ("node.kubernetes.io/", "belongs to Kubernetes itself"),
    ],
)
def test_a_prefix_that_no_label_may_have_is_refused(
    prefix: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent_main(["label", "--print", "--label-prefix", prefix]) == 64
    assert why in capsys.readouterr().err


def test_a_driver_that_hangs_is_said_and_asked_once_until_it_answers() -> None:
    answers, asked = threading.Event(), []

    def hangs() -> Facts:
        asked.append(1)
        answers.wait()
        return Facts(avx512=True)

    reader = FactsReader(hangs, deadline_s=0.05)
    for _ in range(3):
        with pytest.raises(DriverHangs, match=r"no answer within 0\.05 s"):
            reader()
    answers.set()
    found: list[Facts] = []

    def is_answered() -> bool:
        with contextlib.suppress(DriverHangs):  # the thread may need more than a deadline to run
            found.append(reader())
        return bool(found)

    wait_for(is_answered, "the answer")
    assert found == [Facts(avx512=True)]
    assert len(asked) == 1


def test_a_bug_in_reading_is_raised_where_it_was_asked_for() -> None:
    def fails() -> Facts:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        FactsReader(fails)()
