"""What was measured: the record, its key, and when it is not to be used."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.benchmark import (
    EXPIRES_S,
    BenchmarkKey,
    BenchmarkResult,
    DeviceClass,
    Speeds,
    config_map_data,
    newest,
    read_config_map,
    read_result,
)
from reconciler.api.benchmark_settings import settings_digest
from reconciler.api.errors import BenchmarkError
from reconciler.api.fleetnode import Cpu, Device, Hardware
from reconciler.api.nodelabels import NodeLabels

NOW = 1_800_000_000.0
L4 = DeviceClass(vendor="NVIDIA", arch="sm_89", memory_gib=22, count=1)
KEY = BenchmarkKey(
    model="a" * 64, runtime="llama-server", build="11434", settings="b" * 64, device=L4
)


def result(**changes: Any) -> BenchmarkResult:
    values: dict[str, Any] = {
        "key": KEY,
        "service": "default/chat",
        "model": "tiny",
        "node": "studio",
        "generation": Speeds.of([41.0, 40.0, 45.0]),
        "measured_at": NOW,
        "iterations": 3,
    }
    return BenchmarkResult(**{**values, **changes})


def test_the_figure_is_the_median_of_its_samples() -> None:
    speeds = Speeds.of([41.0, 40.0, 45.0])

    assert speeds.tokens_per_second == 41.0
    assert speeds.variation == pytest.approx(0.063, abs=0.001)
    assert Speeds.of([7.0]).variation is None, "one run tells nothing of its noise"


def test_a_key_names_a_config_map_the_same_way_everywhere() -> None:
    assert KEY.config_map == "bench-0e281c93e6aa26aa"
    again = BenchmarkKey.model_validate(KEY.model_dump(by_alias=True))
    assert again.config_map == KEY.config_map


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"model": "c" * 64}, "model digest"),
        ({"build": "11435"}, "runtime build"),
        ({"settings": "c" * 64}, "settings"),
        ({"device": L4.model_copy(update={"count": 2})}, "device class"),
        ({"protocol": 2}, "protocol"),
    ],
)
def test_another_build_or_digest_makes_evidence_stale(changed: dict[str, Any], word: str) -> None:
    other = KEY.model_copy(update=changed)

    assert other.config_map != KEY.config_map
    assert result().stale(NOW, KEY) is None
    assert result().stale(NOW, other) == f"measured with another {word}"


def test_evidence_expires_and_a_time_to_come_is_not_believed() -> None:
    old = result(measured_at=NOW - EXPIRES_S - 86_400)
    assert old.stale(NOW) == "measured 91 days ago, and counts for 90"
    ahead = result(measured_at=NOW + 2 * 86_400)
    assert ahead.stale(NOW) == "measured 2.0 days from now: a clock is wrong"
    assert result(measured_at=NOW + 60).stale(NOW) is None


def test_what_was_too_noisy_has_no_speed_to_compute_with() -> None:
    noisy = result(problem="too noisy")
    assert noisy.tokens_per_second is None
    assert noisy.stale(NOW) == "too noisy"


def test_the_newest_usable_result_answers() -> None:
    old = result(measured_at=NOW - 100)
    new = result(measured_at=NOW - 10, key=KEY.model_copy(update={"build": "11500"}))
    noisy = result(problem="too noisy")

    found = newest([old, new, noisy], NOW, device=L4, model="a" * 64, runtime="llama-server")
    assert found == new
    assert newest([old, new, noisy], NOW, build="11434") == old
    assert newest([old, new], NOW, device=DeviceClass(cpu="Xeon", cores=8)) is None
    assert newest([old, new], NOW + EXPIRES_S, model="a" * 64) is None


def test_a_machine_and_the_labels_of_its_node_are_of_one_class() -> None:
    gpu = Device(vendor="NVIDIA", arch="sm_89", memory=23_034 * 2**20)
    machine = Hardware(cpu=Cpu(cores=8), devices=(gpu, gpu))
    labels = NodeLabels("NVIDIA", 23_034 * 2**20, "sm_89", count=2)

    assert DeviceClass.of(machine, "Xeon", 1) == DeviceClass.labelled(labels) == L4
    assert DeviceClass.labelled(replace(labels, vram=22 * 2**30)) == L4, "rounded labels do too"
    assert DeviceClass.of(machine, "Xeon", 2) == DeviceClass.labelled(labels, 2) != L4
    assert DeviceClass.labelled(replace(labels, vram=None)) is None, "its memory is not known"


def test_unified_memory_is_of_one_class_however_much_a_label_tells_of_it() -> None:
    gpu = Device(vendor="NVIDIA", arch="sm_121", memory="unified")
    labels = NodeLabels("NVIDIA", 120 * 2**30, "sm_121", count=1, unified=True)

    assert DeviceClass.labelled(labels) == DeviceClass.of(Hardware(devices=(gpu,)), None, 1)


def test_a_process_without_a_gpu_is_of_its_processors_class() -> None:
    gpu = Device(vendor="AMD", arch="gfx90a", memory=64 * 2**30)
    machine = Hardware(cpu=Cpu(cores=8, performance_cores=4), devices=(gpu,))

    assert DeviceClass.of(machine, "Xeon", 0) == DeviceClass(cpu="Xeon", cores=4)
    assert DeviceClass.labelled(NodeLabels(avx512=True)) is None
    assert DeviceClass.labelled(NodeLabels(vendor="AMD")) is None, "a GPU without a driver"


def test_gpus_that_differ_are_a_class_of_their_own() -> None:
    large = Device(vendor="NVIDIA", arch="sm_90", memory=80 * 2**30)
    small = Device(vendor="NVIDIA", arch="sm_89", memory=24 * 2**30)
    both = DeviceClass.of(Hardware(devices=(large, small)), None, 2)

    assert (both.arch, both.memory_gib, both.count) == ("sm_89+sm_90", 24, 2)


def test_settings_that_make_no_token_faster_change_no_key() -> None:
    settings = {"contextSize": 4096, "flashAttention": "auto", "promptCache": 1, "jinja": True}
    same = {**settings, "promptCache": 2, "jinja": False}

    assert settings_digest(settings, "tiny") == settings_digest(same, "tiny")
    assert settings_digest(settings, "tiny") != settings_digest(
        {**settings, "contextSize": 8192}, "tiny"
    )


def test_an_option_of_a_later_version_that_is_off_changes_no_key() -> None:
    settings = {"contextSize": 4096, "gpuLayers": None}
    later = {**settings, "runtimeOptions.draft": None, "runtimeOptions.swaFull": False}

    assert settings_digest(settings, "tiny") == settings_digest(later, "tiny")
    assert settings_digest(settings, "tiny") != settings_digest({**later, "gpuLayers": 0}, "tiny")


def test_a_model_behind_a_router_has_its_own_settings_only() -> None:
    alone = {"contextSize": 4096, "flashAttention": "auto"}
    routed = {
        "models[tiny].contextSize": 4096,
        "models[tiny].preload": True,
        "models[other].contextSize": 512,
        "flashAttention": "auto",
        "router.resident": 2,
    }
    assert settings_digest(routed, "tiny") == settings_digest(alone, "tiny")
    assert settings_digest(routed, "other") != settings_digest(alone, "tiny")


def test_a_config_map_is_read_back() -> None:
    data = config_map_data(result())

    assert data["tokensPerSecond"] == "41.00"
    assert data["timestamp"] == "2027-01-15T08:00:00Z"
    assert read_config_map(KEY.config_map, {**data, "of-a-newer-version": "x"}) == result()


def edited(data: dict[str, str]) -> list[tuple[str, dict[str, str], str]]:
    text = data["result"]
    return [
        (KEY.config_map, {**data, "tokensPerSecond": "900.00"}, "edited by hand (tokensPerSecond)"),
        (
            KEY.config_map,
            {**data, "result": text.replace('"tokensPerSecond":41.0', '"tokensPerSecond":900')},
            "generation: tokensPerSecond 900 is not the median of its samples, 41",
        ),
        (
            KEY.config_map,
            {**data, "result": text.replace("11434", "11500")},
            "holds the result of bench-",
        ),
        ("bench-0", data, f"holds the result of {KEY.config_map}"),
        (KEY.config_map, {"tokensPerSecond": "150.75"}, "no key 'result'"),
        (KEY.config_map, {**data, "result": "["}, "is no benchmark result ("),
        (KEY.config_map, {**data, "result": "[" * 10_000}, "nested too deep"),
        (KEY.config_map, {**data, "result": "NaN"}, "NaN is not a usable number"),
        (KEY.config_map, {**data, "result": "{}"}, "key: Field required"),
        (
            KEY.config_map,
            {**data, "result": re.sub(r'"samples":\[.*?\]', '"samples":[-1]', text)},
            "generation.samples.0: Input should be greater than 0",
        ),
    ]


@pytest.mark.parametrize(("name", "data", "words"), edited(config_map_data(result())))
def test_a_config_map_that_was_edited_by_hand_is_refused(
    name: str, data: dict[str, str], words: str
) -> None:
    with pytest.raises(BenchmarkError, match=r"; remove it, and measure again$") as refused:
        read_config_map(name, data)
    assert words in str(refused.value)


def test_a_result_without_a_speed_says_why() -> None:
    empty = result(generation=None, problem="the engine died").model_dump(mode="json")
    assert read_result(empty, "it").problem == "the engine died"
    with pytest.raises(BenchmarkError, match="nor why there is none"):
        read_result({**empty, "problem": None}, "it")
