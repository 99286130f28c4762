"""What runs in a pod: it brings models, waits for them, says who is ready, and measures others.

Each is an ordinary command: `fleet-agent pod ACTION --help` has its options.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli.download_options import DOWNLOAD_OPTIONS
from reconciler.api.errors import ReconcilerError, UsageError
from reconciler.console.edge import Exit, endings
from reconciler.console.option import GIT_OPTIONS, Option, add
from reconciler.console.value import file_path
from reconciler.report.terminal import printable
from reconciler.source.address import redact_url

if TYPE_CHECKING:
    from reconciler.api.benchmark import BenchmarkKey
    from reconciler.fleet.model_file import ModelFile
    from reconciler.models import FetchContext

_GIT_TOKEN = "FLEET_GIT_TOKEN"  # noqa: S105 - the variable's name
_TERMINATION_LOG = Path("/dev/termination-log")
_MOST_TOLD = 1024  # Kubernetes keeps 4096 bytes, and shows them in one line
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


_STORE = Option("store", "the volume that has the models", "DIR", read=file_path,
                fallback="/models", stated_variable="FLEET_MODEL_STORE")  # fmt: skip
_FETCH = (
    Option("model", "the Model's name", "NAME"),
    Option("source", "where it comes from, as in spec.source", "SOURCE"),
    Option("sha256", "the digest that it must have", "HEX", read=_hex),
    Option("format", f"{', '.join(_FORMATS)} (default: by its name)", "FORMAT", names=_FORMATS),
    Option("allowed-hosts", "download from these only, with commas (default: from any)", "HOSTS",
           read=_hosts),
    Option("git-url", "the fleet's repository, for a source that is a path in it; its token may"
           f" stand in ${_GIT_TOKEN}", "URL"),
    Option("git-revision", "the commit to read it from", "SHA"),
    Option("attempts", "how many in a row may bring nothing", "COUNT", read=_count, fallback="10"),
    Option("give-up-after", "how long to try in all", "TIME", read=_seconds, fallback="6h"),
    Option("termination-log", "where to leave the reason of a failure (default:"
           f" {_TERMINATION_LOG}, where there is one)", "FILE", read=file_path),
)  # fmt: skip
_WAIT = (Option("timeout", "how long (default: for ever)", "TIME", read=_seconds),)
_COMPANION = (
    Option("runtime", "the engine's runtime", "NAME"),
    Option("port", "where the engine listens", "PORT", read=_port),
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
_BENCH = (
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
           f" {_TERMINATION_LOG}, where there is one)", "FILE", read=file_path),
)  # fmt: skip


EXAMPLES: Mapping[str, str] = {}  # pods run these, not people


def add_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    fetch = _add_action(actions, "fetch", "bring one model into the volume, verified")
    add(fetch, (_STORE, *_FETCH, *DOWNLOAD_OPTIONS, *GIT_OPTIONS))
    _add_lists(fetch, "file", "PATTERN", "which files of a folder, as in spec.files")
    _add_lists(fetch, "mirror", "HOST=URL", "ask there in place of a host")
    wait = _add_action(actions, "wait", "wait until models are there, whole and verified")
    add(wait, (_STORE, *_WAIT))
    _add_lists(wait, "ready", "PATH", "what an engine will be given", required=True)
    companion = _add_action(actions, "companion", "readiness and drain of the engine beside it")
    add(companion, _COMPANION)
    _add_lists(companion, "name", "NAME", "a name that the engine answers for", required=True)
    _add_lists(companion, "preload", "NAME", "what a router is to have up (default: the first)")
    add(_add_action(actions, "bench", "measure the model of another pod, once"), _BENCH)


def _add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    said = f"{text[0].upper()}{text[1:]}."
    return actions.add_parser(name, help=text, description=said)


def _add_lists(
    parser: argparse.ArgumentParser, name: str, metavar: str, text: str, *, required: bool = False
) -> None:
    parser.add_argument(
        f"--{name}",
        action="extend",
        nargs="+",
        default=[],
        metavar=metavar,
        help=text,
        required=required,
    )


def run(args: argparse.Namespace) -> int:
    """Exit 0, 1 with the reason, 3 where a measurement does not count, or 130 after a request to
    stop."""
    actions = {
        "fetch": _run_fetch,
        "wait": _run_wait,
        "companion": _run_companion,
        "bench": _run_bench,
    }
    return actions[args.action](args)


def _run_fetch(args: argparse.Namespace) -> int:
    from agent.models.store import ModelStore
    from agent.pod.fetch import FetchJob, RetryLimits

    stop = threading.Event()
    try:
        with endings(stop.set) as received:
            model = _model(args)
            store = ModelStore(
                args.store,
                max_downloads=1,
                min_free_bytes=args.keep_free,
                hf_token_file=str(args.hf_token_file) if args.hf_token_file else None,
                in_turn=True,
            )
            patience = RetryLimits(args.attempts, args.give_up_after)
            context = _context(args)
            try:
                FetchJob(store, model, context, _teller(model.name), patience, stop).run()
            except ReconcilerError:
                if received:
                    return Exit.INTERRUPTED
                raise
            finally:
                store.close()
    except (ReconcilerError, OSError) as error:
        _leave_reason(args.termination_log, error)
        raise
    return Exit.OK


def _model(args: argparse.Namespace) -> ModelFile:
    from reconciler.api.model import format_by_name
    from reconciler.fleet.model_file import ModelFile
    from reconciler.models import check_source

    _require(args, "model", "source")
    if reason := check_source(args.source):
        raise UsageError(f"--source {printable(args.source)}: {reason}")
    if args.source.lower().startswith("file://"):  # the volume's other models, or our own secrets
        raise UsageError(f"--source {printable(args.source)}: pods read no files of a node")
    form = args.format or format_by_name(args.source)
    return ModelFile(args.model, args.source, form, sha256=args.sha256, files=tuple(args.file))


def _context(args: argparse.Namespace) -> FetchContext:
    """The Fleet's policy for downloads, and its repository where the source is a path in it."""
    from reconciler.models import FetchContext

    mirrors = _mirrors(args.mirror)
    if "://" in args.source:
        return FetchContext(args.allowed_hosts, mirrors)
    from agent.pod.repository import Repository
    from reconciler.source.address import GitCredentials

    _require(args, "git-url", "git-revision")
    token_file = args.git_token_file or _token_file()
    files = (token_file, args.ssh_key_file, args.known_hosts_file, args.ca_file)
    folder = Path(tempfile.gettempdir())  # the pod's own: git locks, and is slow on a shared volume
    found = Repository(folder, args.git_url, args.git_revision, GitCredentials(*files))
    return FetchContext(args.allowed_hosts, mirrors, found.open, found.folder)


def _token_file() -> Path | None:
    """A Secret becomes variables of a container: the token that one of them holds, as a file that
    only we can read and that goes with us."""
    token = os.environ.get(_GIT_TOKEN)
    if not token:
        return None
    descriptor, name = tempfile.mkstemp(prefix="git-token-")
    atexit.register(Path(name).unlink, missing_ok=True)
    with open(descriptor, "w") as file:
        file.write(token)
    return Path(name)


def _mirrors(stated: list[str]) -> Mapping[str, str]:
    pairs = [word.partition("=") for word in stated]
    if wrong := [host for host, _, url in pairs if not (host and url)]:
        raise UsageError(f"--mirror {wrong[0]}: write HOST=URL")
    return {host: url for host, _, url in pairs}


def _run_wait(args: argparse.Namespace) -> int:
    from agent.pod.wait import wait

    stop = threading.Event()
    ready = [Path(path) for path in args.ready]
    with endings(stop.set):
        there = wait(args.store, ready, _teller("wait"), stop, args.timeout)
    return Exit.OK if there else Exit.INTERRUPTED


def _run_companion(args: argparse.Namespace) -> int:
    from agent.pod.companion import Companion, Delays
    from agent.pod.engine import Engine
    from agent.pod.web import PodServer
    from agent.server.sampler import Sampler

    _require(args, "runtime", "port")
    key_file = str(args.api_key_file) if args.api_key_file else None
    engine = Engine.beside(args.runtime, args.port, tuple(args.name), key_file)
    companion = Companion(
        engine,
        _teller("companion"),
        preload=tuple(args.preload),
        drain_timeout_s=args.drain_timeout,
        pace=Delays(settle_s=args.settle),
    )
    sampler = Sampler(companion.counters, every_s=args.sample_interval)
    with PodServer(args.listen, companion, sampler, args.node) as server:
        # A server is ended from another thread than the one that serves.
        end = threading.Thread(target=server.shutdown, name="end", daemon=True)
        with endings(end.start):
            companion.start()
            sampler.start()
            server.serve_forever()
    sampler.close()
    companion.close()
    return Exit.OK


def _run_bench(args: argparse.Namespace) -> int:
    from agent.bench.protocol import BenchmarkBudget
    from agent.pod.bench import PodSubject, RemoteMeasurement

    _require(args, "host", "port", "model", "service", "node", "key")
    say = _teller(args.model)
    subject = PodSubject(
        args.host, args.port, args.model, args.service, args.node, _benchmark_key(args.key)
    )
    budget = BenchmarkBudget(args.warmups, args.runs, args.longest)
    try:
        most = args.max_variation / 100
        result = RemoteMeasurement(subject, budget, args.wait, most, say).run()
    except ReconcilerError as error:
        _leave_reason(args.termination_log, error)
        raise
    _leave(args.termination_log, result.model_dump_json(by_alias=True, exclude_none=True))
    if result.problem is not None:
        say(f"not used: {result.problem}")
        return Exit.BLOCKED
    say(f"{result.tokens_per_second:.1f} tokens/s")
    return Exit.OK


def _benchmark_key(text: str) -> BenchmarkKey:
    from pydantic import ValidationError

    from reconciler.api.benchmark import BenchmarkKey
    from reconciler.api.plain_json import parse_json
    from reconciler.runtimes import RUNTIMES

    try:
        key = BenchmarkKey.model_validate(parse_json(text))
    except (ValidationError, ValueError) as error:
        raise UsageError(f"--key is no key of a benchmark: {str(error).splitlines()[0]}") from error
    if key.runtime not in RUNTIMES:
        raise UsageError(f"--key: there is no runtime {printable(key.runtime)}")
    return key


def _require(args: argparse.Namespace, *names: str) -> None:
    """Raises UsageError where one of these options was not said, nor its variable."""
    if lacking := [n for n in names if getattr(args, n.replace("-", "_")) is None]:
        raise UsageError(f"say --{lacking[0]}")


def _teller(name: str) -> Callable[[str], None]:
    def tell(text: str) -> None:
        with contextlib.suppress(OSError):  # the reader of our output is gone: that stops nothing
            print(f"{name}: {printable(redact_url(text))}", file=sys.stderr, flush=True)

    return tell


def _leave_reason(stated: Path | None, error: Exception) -> None:
    """Where Kubernetes reads why a container ended, in the words that a status takes up."""
    from agent.models.downloads import reason_of

    line = " ".join(printable(redact_url(str(error))).split())
    _leave(stated, f"{reason_of(error)}: {line[:_MOST_TOLD]}\n")


def _leave(stated: Path | None, text: str) -> None:
    path = stated or (_TERMINATION_LOG if _TERMINATION_LOG.exists() else None)
    if path is not None:
        with contextlib.suppress(OSError):
            path.write_text(text)
