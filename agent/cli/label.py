"""Keep this machine's Node in a cluster labelled with its hardware: GPU, its memory, AVX-512.

It writes its own keys of that one Node and nothing else. They stay when it ends: --remove takes
them away.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import platform
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, endings
from reconciler.console.option import Option, add
from reconciler.console.shared import CONTEXT, KUBECONFIG, LABEL_PREFIX
from reconciler.console.value import file_path

if TYPE_CHECKING:
    from agent.labels.facts import FactsReader
    from agent.labels.labeler import Labeler
    from reconciler.kube.client.api import ApiServer

EXAMPLES = {
    "fleet-agent label --print": "what would be written, as JSON; needs no cluster",
    "fleet-agent label --once --node worker-3": "write it, and end",
    "fleet-agent label --remove --all": "take them from every Node of the cluster",
}


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**16):
        raise ValueError("give a port up to 65535, or 0 for none")
    return int(text)


def _interval(text: str) -> float:
    from reconciler.api.quantity import parse_duration

    if (seconds := parse_duration(text)) < 1:
        raise ValueError("give 1s or more")
    return seconds


_OPTIONS = (
    Option("interval", "how often the machine is looked at", "TIME", read=_interval,
           fallback="30s", stated_variable="FLEET_LABEL_INTERVAL"),
    Option("metrics-port", "of /metrics and /healthz, on every address; 0: none are served",
           "PORT", read=_port, fallback="9100"),
    LABEL_PREFIX,
    Option("node", "the Node that this machine is (default: this host's name)", "NAME"),
    Option("host-root", "where the machine's /sys and /proc are, as seen from here", "DIR",
           read=file_path, fallback="/"),
    KUBECONFIG,
    CONTEXT,
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--print",
        action="store_true",
        help="print the labels and annotations as JSON, and open no connection",
    )
    ways.add_argument("--once", action="store_true", help="write them once, and end")
    ways.add_argument("--remove", action="store_true", help="take away what was written, and end")
    parser.add_argument(
        "--all", action="store_true", help="with --remove: from every Node of the cluster"
    )
    add(parser, _OPTIONS)


def run(args: argparse.Namespace) -> int:
    if args.all and not args.remove:
        raise UsageError("--all goes with --remove: a machine labels no Node but its own")
    if args.print:
        return _print(args)
    from agent.daemon.log import log_to
    from reconciler.kube.client.access import open_cluster

    log_to(sys.stderr, "info")
    api = open_cluster(args.context or "default", args.context, kubeconfig=args.kubeconfig)
    try:
        return _remove(api, args) if args.remove else _label(api, args)
    finally:
        api.close()


def _print(args: argparse.Namespace) -> int:
    from agent.labels.deciding import decide

    decided = decide(_reader(args.host_root)())
    shown = {
        "node": _node(args),
        "labels": decided.labels.labels(args.label_prefix),
        "annotations": decided.annotations(args.label_prefix),
    }
    print(json.dumps(shown, indent=2))
    return Exit.OK


def _label(api: ApiServer, args: argparse.Namespace) -> int:
    from agent.labels.labeler import Labeler

    labeler = Labeler(api, _node(args), args.label_prefix, _reader(args.host_root))
    if args.once:
        labeler.once()
        return Exit.OK
    stop = threading.Event()
    with endings(stop.set), _served(labeler, args):
        labeler.run(stop, args.interval)
    return Exit.OK


@contextlib.contextmanager
def _served(labeler: Labeler, args: argparse.Namespace) -> Iterator[None]:
    """Health and metrics meanwhile. Raises UsageError where the port is taken."""
    if not args.metrics_port:
        yield
        return
    from agent.labels.web import make_app
    from agent.machine.machine import Machine
    from agent.machine.sensors import Sensors
    from reconciler.http.thread import ServerThread

    sensors = Sensors(Machine(args.host_root))
    app = make_app(_node(args), labeler, sensors, args.interval)
    try:
        server = ServerThread(app, "0.0.0.0", args.metrics_port)  # noqa: S104 - of a pod
    except OSError as error:
        raise UsageError(f"--metrics-port {args.metrics_port}: {error.strerror}") from error
    sensors.start()
    with server:
        yield
    sensors.close()


def _remove(api: ApiServer, args: argparse.Namespace) -> int:
    from agent.labels.node import all_nodes, read_node, remove_labels

    for node in all_nodes(api) if args.all else [read_node(api, _node(args))]:
        if remove_labels(api, node):
            name = node["metadata"]["name"]
            logging.getLogger("agent.labels").info("node %s: our labels are taken away", name)
    return Exit.OK


def _node(args: argparse.Namespace) -> str:
    return args.node or platform.node().lower()


def _reader(root: Path) -> FactsReader:
    from agent.labels.facts import FactsReader, read_facts
    from agent.machine.machine import Machine

    return FactsReader(lambda: read_facts(Machine(root)))
