"""How fast a model was measured to be on a class of devices: the record, and what it is good for.
Pure.

A figure counts for its key alone: the same bytes, the same build of the same engine, the same
settings, the same devices, the same protocol. What is older than 90 days counts for nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from reconciler.api.digest import digest
from reconciler.api.errors import BenchmarkError
from reconciler.api.plain_json import parse_json
from reconciler.api.wire import Bytes, Time, Whole, WireModel
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.api.fleetnode import Hardware
    from reconciler.api.nodelabels import NodeLabels

PROTOCOL = 1  # counts on when figures are measured in another way
BATCH_TOKENS = 128
EXPIRES_S = 90 * 86_400.0
CLOCK_SLACK_S = 3600.0  # what two machines' clocks may differ by
_GIB = 2**30
_MOST_SAMPLES = 1000

Speed = Annotated[float, Field(gt=0, le=1e9)]
Text = Annotated[str, Field(min_length=1, max_length=512)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DeviceClass(WireModel):
    """Machines that run a process equally fast, as far as can be told: the devices that it uses,
    or the processor where it uses none."""

    vendor: Annotated[Text | None, Field(description="Of its GPUs. Absent: none is used.")] = None
    arch: Text | None = None
    memory_gib: Annotated[
        Whole | None, Field(ge=0, description="Of one GPU, rounded down. Absent: it is unified.")
    ] = None
    count: Annotated[Whole, Field(ge=0, description="GPUs that the process uses.")] = 0
    cpu: Annotated[Text | None, Field(description="Model of the processor, without a GPU.")] = None
    cores: Annotated[Whole | None, Field(ge=1)] = None

    def __str__(self) -> str:
        if not self.count:
            return f"{self.cpu or 'unknown CPU'}, {self.cores or '?'} cores"
        memory = "unified memory" if self.memory_gib is None else f"{self.memory_gib} GiB"
        return f"{self.count} x {self.vendor or 'GPU'} {self.arch or '?'}, {memory}"

    @classmethod
    def of(cls, hardware: Hardware, cpu: str | None, devices: int) -> DeviceClass:
        """The class of a machine, for a process that uses so many of its devices. Of devices that
        differ, the class is that of all of them together: no single kind of GPU answers for it."""
        used = hardware.devices[:devices]
        if not used:
            return cls(cpu=cpu, cores=hardware.cpu.performance_cores or hardware.cpu.cores)
        sizes = [device.memory for device in used if device.memory != "unified"]
        return cls(
            vendor=_together(device.vendor for device in used),
            arch=_together(device.arch or device.product for device in used),
            memory_gib=min(sizes) // _GIB if sizes else None,
            count=len(used),
        )

    @classmethod
    def labelled(cls, node: NodeLabels, devices: int = 1) -> DeviceClass | None:
        """The class of a cluster's node, for a pod that gets so many of its GPUs. None: its labels
        tell of no GPU, or not enough of it; they never tell which processor it has."""
        if node.vendor is None or node.arch is None or not devices:
            return None
        if node.vram is None and not node.unified:
            return None
        # Of unified memory a label tells what the GPU may take of it.
        memory = None if node.unified or node.vram is None else node.vram // _GIB
        return cls(vendor=node.vendor, arch=node.arch, memory_gib=memory, count=devices)


class BenchmarkKey(WireModel):
    """What a figure depends on. Another value of any of these is another measurement."""

    protocol: Annotated[Whole, Field(ge=1)] = PROTOCOL
    model: Annotated[Sha256, Field(description="Digest of the model's files.")]
    runtime: Text
    build: Annotated[Text, Field(description="Version of the engine, in its own words.")]
    settings: Annotated[Sha256, Field(description="Digest of the settings that matter to speed.")]
    device: DeviceClass

    @property
    def short(self) -> str:
        """16 hexadecimal digits, the same everywhere: they name files and ConfigMaps."""
        return digest(self.model_dump(mode="json", by_alias=True, exclude_none=True))[:16]

    @property
    def config_map(self) -> str:
        return f"bench-{self.short}"

    def differs(self, other: BenchmarkKey) -> tuple[str, ...]:
        """What the other has another value of, for people."""
        return tuple(
            word for name, word in _KEY_WORDS if getattr(self, name) != getattr(other, name)
        )


_KEY_WORDS = (
    ("protocol", "protocol"),
    ("model", "model digest"),
    ("runtime", "runtime"),
    ("build", "runtime build"),
    ("settings", "settings"),
    ("device", "device class"),
)


class Speeds(WireModel):
    """Tokens a second, of each run that counts. The figure is their median."""

    tokens_per_second: Speed
    samples: Annotated[tuple[Speed, ...], Field(min_length=1, max_length=_MOST_SAMPLES)]
    variation: Annotated[
        float | None,
        Field(ge=0, le=1e6, description="Standard deviation over mean. Absent: of one run."),
    ] = None

    @classmethod
    def of(cls, samples: Iterable[float]) -> Speeds:
        """The speeds of at least one sample."""
        kept = tuple(samples)
        return cls(tokens_per_second=_median(kept), samples=kept, variation=_variation(kept))

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        """A figure that was edited by hand no longer matches its samples."""
        median = _median(self.samples)
        if abs(median - self.tokens_per_second) > 1e-6 * median:
            raise ValueError(
                f"tokensPerSecond {self.tokens_per_second:g} is not the median of its samples,"
                f" {median:g}"
            )
        return self


class BenchmarkResult(WireModel):
    """One measurement. With a `problem` it is for people to see and counts for nothing."""

    key: BenchmarkKey
    service: Annotated[Text, Field(description="NAMESPACE/NAME of the service measured.")]
    model: Annotated[Text, Field(description="Name of its Model.")]
    node: Annotated[Text, Field(description="Where it ran.")]
    prompt: Annotated[Speeds | None, Field(description="Reading a prompt.")] = None
    generation: Annotated[Speeds | None, Field(description="Writing an answer.")] = None
    load_seconds: Annotated[
        Time | None, Field(description="From the start of its process to ready.")
    ] = None
    measured_at: Time
    iterations: Annotated[Whole, Field(ge=0, le=_MOST_SAMPLES)]
    warmup_iterations: Annotated[Whole, Field(ge=0)] = 0
    batch_tokens: Annotated[Whole, Field(ge=1)] = BATCH_TOKENS
    timings: Annotated[
        Literal["engine", "clock"],
        Field(description="engine: its own, without the network. clock: ours, around a request."),
    ] = "engine"
    device_memory_bytes: Annotated[
        Bytes | None, Field(description="Of one GPU, exactly; the key has it rounded down.")
    ] = None
    busy: Annotated[
        tuple[Text, ...], Field(description="What else used the machine, before or after.")
    ] = ()
    problem: Annotated[
        Text | None, Field(description="Why the figures are not to be used: too noisy, busy, ...")
    ] = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.problem is None and self.generation is None:
            raise ValueError("neither a speed (generation) nor why there is none (problem)")
        return self

    @property
    def tokens_per_second(self) -> float | None:
        """The figure that others compute with: of writing an answer. None where it is unusable."""
        return self.generation.tokens_per_second if self.generation and not self.problem else None

    def stale(self, now: float, key: BenchmarkKey | None = None) -> str | None:
        """Why it is not to be used at that time, for that key; None where it is."""
        if self.problem is not None:
            return self.problem
        if key is not None and (other := self.key.differs(key)):
            return f"measured with another {', '.join(other)}"
        return self.out_of_date(now)

    def out_of_date(self, now: float) -> str | None:
        """Why its time is over, or cannot be believed."""
        age = now - self.measured_at
        if age < -CLOCK_SLACK_S:
            return f"measured {-age / 86_400:.1f} days from now: a clock is wrong"
        if age > EXPIRES_S:
            return f"measured {age / 86_400:.0f} days ago, and counts for {EXPIRES_S / 86_400:.0f}"
        return None


def newest(
    results: Iterable[BenchmarkResult],
    now: float,
    *,
    device: DeviceClass | None = None,
    **wanted: str | None,
) -> BenchmarkResult | None:
    """The newest usable result whose key has the wanted values (`model`, `runtime`, `build`,
    `settings`; None: any). A build or settings that the caller cannot know may be left out, and
    then the newest measurement answers for all of them."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    usable = [
        result
        for result in results
        if result.stale(now) is None
        and result.key.protocol == PROTOCOL
        and (device is None or result.key.device == device)
        and all(getattr(result.key, name) == value for name, value in asked.items())
    ]
    return max(usable, key=lambda result: result.measured_at, default=None)


def readable(entries: object) -> tuple[BenchmarkResult, ...]:
    """Those of a list that this version can read."""
    results = []
    for entry in entries if isinstance(entries, list | tuple) else ():
        with contextlib.suppress(BenchmarkError):
            results.append(read_result(entry, "an entry"))
    return tuple(results)


def read_result(document: object, where: str) -> BenchmarkResult:
    """A result that anybody may have written, as JSON or parsed; BenchmarkError where it is
    none."""
    try:
        known = parse_json(document) if isinstance(document, str | bytes) else document
        return BenchmarkResult.model_validate(known)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        wrong = first["msg"].removeprefix("Value error, ")
        reason = f"{place}: {wrong}" if place else wrong
    except ValueError as error:
        reason = str(error)
    raise BenchmarkError(f"{where} is no benchmark result ({reason}); remove it, and measure again")


_RESULT = "result"  # the key of the ConfigMap that is read; the others are for people


def config_map_data(result: BenchmarkResult) -> dict[str, str]:
    """The data of its ConfigMap, with FlexInfer's names for what people look for."""
    speed = result.tokens_per_second
    return {
        _RESULT: result.model_dump_json(by_alias=True, exclude_none=True),
        "model": result.model,
        "device": str(result.key.device),
        "timestamp": timestamp(result.measured_at),
    } | ({} if speed is None else {"tokensPerSecond": f"{speed:.2f}"})


def read_config_map(name: str, data: Mapping[str, str]) -> BenchmarkResult:
    """What a ConfigMap holds. One that was edited by hand is refused: which of its figures was
    measured, nobody can tell."""
    where = f"ConfigMap {name}"
    if not isinstance(data.get(_RESULT), str):
        raise BenchmarkError(
            f"{where} is no benchmark result (no key {_RESULT!r}); remove it, and measure again"
        )
    result = read_result(data[_RESULT], where)
    written = config_map_data(result)
    edited = sorted(key for key in written if key != _RESULT and written[key] != data.get(key))
    if result.key.config_map != name:
        raise BenchmarkError(
            f"{where} holds the result of {result.key.config_map}; remove it, and measure again"
        )
    if edited:
        raise BenchmarkError(
            f"{where} was edited by hand ({', '.join(edited)}); remove it, and measure again"
        )
    return result


def _together(figures: Iterable[str | None]) -> str | None:
    known = sorted({word or "?" for word in figures})
    return None if known == ["?"] else "+".join(known)


# Not from `statistics`, whose import is a tenth of what `--help` may take.


def _median(samples: tuple[float, ...]) -> float:
    ordered, half = sorted(samples), len(samples) // 2
    return ordered[half] if len(samples) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _variation(samples: tuple[float, ...]) -> float | None:
    """Standard deviation of the samples over their mean."""
    if len(samples) < 2:
        return None
    mean = sum(samples) / len(samples)
    square = sum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1)
    return math.sqrt(square) / mean
