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
from agent.cli.pod_options import BENCH, COMPANION, FETCH, GIT_TOKEN, STORE, TERMINATION_LOG, WAIT
from reconciler.api.errors import ReconcilerError, UsageError
from reconciler.console.edge import Exit, endings
from reconciler.console.option import add
from reconciler.console.shared import GIT_OPTIONS
from reconciler.report.terminal import printable
from reconciler.source.address import redact_url

if TYPE_CHECKING:
    from reconciler.api.benchmark import BenchmarkKey
    from reconciler.fleet.model_file import ModelFile
    from reconciler.models.scheme import FetchContext

_MOST_TOLD = 1024  # Kubernetes keeps 4096 bytes, and shows them in one line

EXAMPLES: Mapping[str, str] = {}  # pods run these, not people


def add_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    fetch = _add_action(actions, "fetch", "bring one model into the volume, verified")
    add(fetch, (STORE, *FETCH, *DOWNLOAD_OPTIONS, *GIT_OPTIONS))
    _add_lists(fetch, "file", "PATTERN", "which files of a folder, as in spec.files")
    _add_lists(fetch, "mirror", "HOST=URL", "ask there in place of a host")
    wait = _add_action(actions, "wait", "wait until models are there, whole and verified")
    add(wait, (STORE, *WAIT))
    _add_lists(wait, "ready", "PATH", "what an engine will be given", required=True)
    companion = _add_action(actions, "companion", "readiness and drain of the engine beside it")
    add(companion, (STORE, *COMPANION))
    _add_lists(companion, "name", "NAME", "a name that the engine answers for")
    _add_lists(companion, "preload", "NAME", "what a router is to have up (default: the first)")
    _add_lists(companion, "ready", "NAME=PATH", "where a model of the engine is, for metrics")
    add(_add_action(actions, "bench", "measure the model of another pod, once"), BENCH)


def _add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    description = f"{text[0].upper()}{text[1:]}."
    return actions.add_parser(name, help=text, description=description)


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
    from reconciler.models.sources import check_source

    _require(args, "model", "source")
    if reason := check_source(args.source):
        raise UsageError(f"--source {printable(args.source)}: {reason}")
    if args.source.lower().startswith("file://"):  # the volume's other models, or our own secrets
        raise UsageError(f"--source {printable(args.source)}: pods read no files of a node")
    form = args.format or format_by_name(args.source)
    return ModelFile(args.model, args.source, form, sha256=args.sha256, files=tuple(args.file))


def _context(args: argparse.Namespace) -> FetchContext:
    """The Fleet's policy for downloads, and its repository where the source is a path in it."""
    from reconciler.models.scheme import FetchContext

    mirrors = _mirrors(args.mirror)
    if "://" in args.source:
        return FetchContext(args.allowed_hosts, mirrors)
    from agent.pod.repository import Repository
    from reconciler.source.address import GitCredentials

    _require(args, "git-url", "git-revision")
    token_file = args.git_token_file or _token_file()
    files = (token_file, args.ssh_key_file, args.known_hosts_file, args.ca_file)
    folder = Path(tempfile.gettempdir())  # the pod's own: git locks, and is slow on a shared volume
    repository = Repository(folder, args.git_url, args.git_revision, GitCredentials(*files))
    return FetchContext(args.allowed_hosts, mirrors, repository.open, repository.folder)


def _token_file() -> Path | None:
    """A Secret becomes variables of a container: the token that one of them holds, as a file that
    only we can read and that goes with us."""
    token = os.environ.get(GIT_TOKEN)
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
    from agent.pod.loads import ModelLoads
    from agent.pod.web import PodServer
    from agent.server.sampler import Sampler, Shown

    _require(args, "runtime", "port")
    key_file = str(args.api_key_file) if args.api_key_file else None
    engine = Engine.beside(
        args.runtime, args.port, tuple(args.name), key_file, probe_path=args.probe_path
    )
    companion = Companion(
        engine,
        _teller("companion"),
        preload=tuple(args.preload),
        drain_timeout_s=args.drain_timeout,
        pace=Delays(settle_s=args.settle),
    )
    loads = ModelLoads(args.store, _named_paths(args.ready))
    sampler = Sampler(
        companion.counters, lambda: Shown(loads=loads.seconds), every_s=args.sample_interval
    )
    with PodServer(args.listen, companion, sampler, args.node) as server:
        # A server is ended from another thread than the one that serves.
        end = threading.Thread(target=server.shutdown, name="end", daemon=True)
        with endings(end.start):
            companion.start()
            loads.start()
            sampler.start()
            server.serve_forever()
    sampler.close()
    companion.close()
    return Exit.OK


def _named_paths(stated: list[str]) -> Mapping[str, Path]:
    pairs = [word.partition("=") for word in stated]
    if wrong := [name for name, _, path in pairs if not (name and path)]:
        raise UsageError(f"--ready {wrong[0]}: write NAME=PATH")
    return {name: Path(path) for name, _, path in pairs}


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
    path = stated or (TERMINATION_LOG if TERMINATION_LOG.exists() else None)
    if path is not None:
        with contextlib.suppress(OSError):
            path.write_text(text)
