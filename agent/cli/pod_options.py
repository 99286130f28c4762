"""The options of what runs in pods, and how their values are read."""

from __future__ import annotations

from pathlib import Path

from reconciler.console.option import Option
from reconciler.console.value import file_path

GIT_TOKEN = "FLEET_GIT_TOKEN"  # noqa: S105 - the variable's name
TERMINATION_LOG = Path("/dev/termination-log")
_FORMATS = ("gguf", "mlx", "safetensors")


def _seconds(text: str) -> float:
    """A duration, or a number of seconds."""
    from reconciler.api.quantity import parse_duration

    return float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ValueError("give a number from 1 to 1000")
    return int(text)


def _whole(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ValueError("give a port, 1 to 65535")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    """A port alone is that of every address: a kubelet asks from outside of the pod."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), _port(port)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _hex(text: str) -> str:
    if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
        raise ValueError("a sha256 has 64 hexadecimal digits")
    return text.lower()


STORE = Option("store", "the volume that has the models (default: $MODEL_CACHE_PATH, else /models)",
                "DIR", read=file_path, fallback="/models", stated_variable="FLEET_MODEL_STORE",
                foreign_variable="MODEL_CACHE_PATH")  # fmt: skip
FETCH = (
    Option("model", "the Model's name", "NAME"),
    Option("source", "where it comes from, as in spec.source", "SOURCE"),
    Option("sha256", "the digest that it must have", "HEX", read=_hex),
    Option("format", f"{', '.join(_FORMATS)} (default: by its name)", "FORMAT", names=_FORMATS),
    Option("allowed-hosts", "download from these only, with commas (default: from any)", "HOSTS",
           read=_hosts),
    Option("git-url", "the fleet's repository, for a source that is a path in it; its token may"
           f" stand in ${GIT_TOKEN}", "URL"),
    Option("git-revision", "the commit to read it from", "SHA"),
    Option("attempts", "how many in a row may bring nothing", "COUNT", read=_count, fallback="10"),
    Option("give-up-after", "how long to try in all", "TIME", read=_seconds, fallback="6h"),
    Option("termination-log", "where to leave the reason of a failure (default:"
           f" {TERMINATION_LOG}, where there is one)", "FILE", read=file_path),
)  # fmt: skip
WAIT = (Option("timeout", "how long (default: for ever)", "TIME", read=_seconds),)
COMPANION = (
    Option("runtime", "the engine's runtime", "NAME"),
    Option("port", "where the engine listens", "PORT", read=_port),
    Option("probe-path", "what to ask whether it is ready (default: what its runtime has)", "PATH"),
    Option("listen", "where to answer", "[ADDRESS:]PORT", read=_address, fallback="9091"),
    Option("drain-timeout", "how long a drain may take", "TIME", read=_seconds, fallback="60s"),
    Option("settle", "how long a drain takes at least, while the endpoint is withdrawn", "TIME",
           read=_seconds, fallback="5s"),
    Option("api-key-file", "the key that the engine asks of clients (default: it asks for none)",
           "FILE", read=file_path),
    Option("node", "where the pod runs, for metrics", "NAME", fallback="unknown"),
    Option("sample-interval", "how often the engine's tokens are counted", "TIME", read=_seconds,
           fallback="15s"),
)  # fmt: skip
BENCH = (
    Option("host", "the pod's address", "IP"),
    Option("port", "where its engine listens", "PORT", read=_port),
    Option("model", "the name of the model to measure", "NAME"),
    Option("service", "whose pod it is, for the result", "NAMESPACE/NAME"),
    Option("node", "where that runs, for the result", "NAME"),
    Option("key", "what the figures will count for", "JSON"),
    Option("warmups", "how many runs are left out", "COUNT", read=_whole, fallback="2"),
    Option("runs", "how many count", "COUNT", read=_count, fallback="5"),
    Option("longest", "how long they may take", "TIME", read=_seconds, fallback="30s"),
    Option("wait", "how long to wait for requests in flight", "TIME", read=_seconds,
           fallback="10m"),
    Option("max-variation", "by how many percent runs may differ", "PERCENT", read=_count,
           fallback="10"),
    Option("termination-log", "where to leave the result, or why there is none (default:"
           f" {TERMINATION_LOG}, where there is one)", "FILE", read=file_path),
)  # fmt: skip
