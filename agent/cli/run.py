"""Be this machine's agent: follow the fleet's repository and keep its services running.

SIGHUP, or a POST to /v1/wake, makes it look at once. SIGTERM and SIGINT end it and leave the models
running. Every option is also an environment variable; what is typed wins.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agent.cli.download_options import DOWNLOAD_OPTIONS, MODEL_STORE, download_settings
from reconciler.api.errors import SourceError, UsageError
from reconciler.console.option import (
    Option,
    add,
    command_line,
    program_options,
    programs_of,
    source_of,
)
from reconciler.console.shared import (
    AGENT_OPTIONS,
    API_KEY_FILE,
    CONTEXT,
    GIT_OPTIONS,
    HOST_IP,
    INTERVAL,
    KUBECONFIG,
    MEMORY_FRACTION,
    OFFERED_RUNTIMES,
    OFFLINE,
    RUNTIME,
    SERVICE_PORTS,
    STATE_DIR,
    credentials_of,
)
from reconciler.console.value import file_path

if TYPE_CHECKING:
    from agent.cluster.agent import ClusterAgent
    from agent.node.settings import Settings
    from reconciler.loop import Wake

_WITHDRAW_S = 2.0  # until every node of a cluster has a changed EndpointSlice


EXAMPLES = {
    "fleet-agent run --fleet https://git.example/fleet.git": "as the node of this host's name",
    "fleet-agent run --fleet . --node laptop": "from a folder, as another one",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    for title, options in _groups().items():
        add(parser.add_argument_group(title), options)


def run(args: argparse.Namespace) -> int:
    """Exit 0 after SIGTERM, 130 after SIGINT. Raises UsageError, SourceError, StateError."""
    check_source(args)
    from agent.daemon.daemon import DaemonOptions, run
    from agent.node.settings import Intervals, Settings
    from agent.server import ListenSettings
    from agent.state.directory import state_root
    from reconciler.api.quantity import parse_duration
    from reconciler.loop import Wake
    from reconciler.loop.journal import applied_location

    settings = Settings(
        root=state_root(args.state_dir),
        programs=programs_of(args),
        model_store=args.model_store,
        downloads=download_settings(args),
        offline=args.offline,
        namespace=args.namespace,
        runtime=args.runtime,
        runtimes=args.runtimes,
        host_ip=args.host_ip,
        api_key_file=args.api_key_file,
        service_ports=args.service_ports,
        intervals=Intervals(
            *(parse_duration(getattr(args, option.attribute)) for option in _INTERVALS)
        ),
        memory_fraction=args.memory_fraction,
        memory_mode=args.memory_check_mode,
        peers=credentials_of(args),
        withdraw_s=_WITHDRAW_S if args.kubernetes else 0.0,
    )
    service = DaemonOptions(
        node=args.node,
        listen=ListenSettings(args.listen, args.port, args.client_ca_file, args.host_ip),
        interval_s=parse_duration(args.interval),
        strict=args.strict_history,
        confirmed=frozenset(args.confirm or ()),
        log_level=args.log_level,
        stop_on_exit=args.stop_on_exit,
    )
    wake = Wake()
    if args.kubernetes:
        agent = _cluster_agent(args, settings, wake)
        return run(lambda: agent.source, settings, service, wake, agent.beside)
    # A folder that is gone is a lost source, once something of it was applied here.
    before = applied_location(settings.root / "desired" / "history.json")
    return run(
        lambda: source_of(args, args.fleet, applied_from=before, option="--fleet"),
        settings,
        service,
        wake,
    )


def check_source(args: argparse.Namespace) -> None:
    """Whether it is said where the desired state is, and once. Raises UsageError."""
    if args.kubernetes:
        if args.fleet:
            raise UsageError("--kubernetes takes the fleet from a cluster: leave out --fleet")
        if not args.node:
            raise UsageError("--kubernetes needs --node NAME: the FleetNode that this machine is")
        return
    if not args.fleet:
        raise UsageError(
            "say where the fleet is: --fleet URL, or $FLEET_URL; --kubernetes takes it from a"
            " cluster"
        )
    for option in _CLUSTER[1:]:
        if getattr(args, option.attribute):
            raise UsageError(f"--{option.name} goes with --kubernetes")


def options_of_run() -> tuple[Option, ...]:
    """Every option of this command, with its variable."""
    return (*(option for group in _groups().values() for option in group), STATE_DIR)


def run_arguments(args: argparse.Namespace) -> tuple[str, ...]:
    """The words after `fleet-agent run` that say the same as these and the environment now."""
    return command_line(args, options_of_run())


def _groups() -> dict[str, tuple[Option, ...]]:
    return {
        "the fleet": (*_FLEET, INTERVAL),
        "a cluster as the source": _CLUSTER,
        "git credentials": GIT_OPTIONS,
        "this machine (what its FleetNode says wins)": _MACHINE,
        "downloads": (*DOWNLOAD_OPTIONS, OFFLINE),
        "engines": program_options(),
        "agents of other nodes (a service that moves waits for theirs)": AGENT_OPTIONS,
        "the agent": _AGENT,
        "how often it looks": _INTERVALS,
    }


def _cluster_agent(args: argparse.Namespace, settings: Settings, wake: Wake) -> ClusterAgent:
    """Raises AccessError."""
    from agent.cluster.agent import ClusterAgent, ClusterSettings

    cluster = ClusterSettings(args.node, args.kubeconfig, args.context, args.standalone)
    return ClusterAgent(cluster, settings, wake, withdraws=args.stop_on_exit)


def _location(text: str) -> str:
    """A folder as an absolute path, anything else as it is."""
    from reconciler.source.address import parse_address

    try:
        path = parse_address(text).path
    except SourceError as error:
        raise ValueError(str(error)) from error
    return text if path is None else str(path.absolute())


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(token for word in text.split(",") if (token := word.strip()))


def _pause(text: str) -> str:
    from reconciler.api.quantity import parse_duration

    if parse_duration(text) < 0.1:
        raise ValueError("give 100ms or more")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError("give a number up to 65535; 0 takes a free port")
    return int(text)


_FLEET = (
    Option(
        "fleet",
        "a git URL, a folder, or a .bundle file: where the desired state is",
        "URL",
        read=_location,
        stated_variable="FLEET_URL",
    ),
    Option("ref", "a branch, tag or commit (default: the remote's default branch)", "REF"),
    Option("path", "only this folder of the fleet", "DIR"),
    Option(
        "strict-history",
        "follow no rewritten branch until `fleet-agent accept COMMIT`",
        None,
    ),
    Option(
        "confirm",
        "release the removals that a plan has printed these words for, with commas between",
        "TOKENS",
        read=_tokens,
    ),
)
_CLUSTER = (
    Option("kubernetes", "take the desired state from a cluster's API, and publish there what"
           " runs here", None),
    Option("standalone", "there is no reconciler in it: serve what asks for metal", None),
    KUBECONFIG,
    CONTEXT,
)  # fmt: skip
_MACHINE = (
    Option("node", "the FleetNode that this machine is (default: the one of its name)", "NAME"),
    Option("namespace", "only services of this namespace (default: all)", "NAME"),
    MODEL_STORE,
    HOST_IP,
    API_KEY_FILE,
    SERVICE_PORTS,
    RUNTIME,
    OFFERED_RUNTIMES,
    MEMORY_FRACTION,
    Option(
        "memory-check-mode",
        "enforce, or warn: start what does not fit all the same and say so",
        "MODE",
        names=("enforce", "warn"),
    ),
)  # fmt: skip
_INTERVALS = (  # as Intervals has them
    Option("probe-interval", "whether a ready process still answers; a death is seen at once",
           "TIME", read=_pause, fallback="10s"),
    Option("drift-interval", "whether it still is what was declared", "TIME", read=_pause,
           fallback="60s"),
    Option("sample-interval", "tokens, temperatures and memory, for metrics", "TIME",
           read=_pause, fallback="15s"),
)  # fmt: skip
_AGENT = (
    Option("port", "of the agent's state, health and metrics (default: 9090)", "PORT",
           read=_port, fallback="9090"),
    Option("listen", "the address for that (default: loopback; others demand a token)", "ADDRESS",
           fallback="127.0.0.1"),
    Option("client-ca-file", "who may ask: clients with a certificate of this CA", "FILE",
           read=file_path),
    Option("log-level", "debug, info, warning or error (default: info)", "LEVEL",
           names=("debug", "info", "warning", "error"), fallback="info"),
    Option("stop-on-exit", "stop the models too, when the agent ends", None),
)  # fmt: skip
