"""Answer a kube-scheduler that asks which node is good for a service: a scheduler extender.

It filters nodes by the hardware labels that `fleet-agent label` writes, and scores those that are
left by measured speed, utilisation and cost. --print-config shows what the scheduler needs.
"""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, endings
from reconciler.console.option import Option, add
from reconciler.console.shared import CONTEXT, KUBECONFIG, LABEL_PREFIX
from reconciler.console.value import file_path

if TYPE_CHECKING:
    import ssl

    from reconciler.placement.score import ScoreWeights

EXAMPLES = {
    "reconcile extender": "answer on port 8888",
    "reconcile extender --weights tps=0.2,util=0.2,cost=0.6": "money before speed",
    "reconcile extender --print-config": "what the scheduler needs, as YAML",
}


def _weights(text: str) -> ScoreWeights:
    from reconciler.placement.score import ScoreWeights

    return ScoreWeights.read(text)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 2**16:
        raise ValueError("give a port from 0 to 65535; 0 is a free one")
    return port


_OPTIONS = (
    Option("port", "where schedulers are answered", "PORT", read=_port, fallback="8888",
           stated_variable="FLEET_EXTENDER_PORT"),
    Option("weights", "what tokens/s, utilisation and cost of a node count", "TPS,UTIL,COST",
           read=_weights, fallback="tps=0.7,util=0.2,cost=0.1"),
    LABEL_PREFIX,
    Option("tls-cert-file", "the certificate to show schedulers; without it plain HTTP is spoken",
           "FILE", read=file_path),
    Option("tls-key-file", "its key", "FILE", read=file_path),
    KUBECONFIG,
    CONTEXT,
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the scheduler's configuration, and open no connection",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="with --print-config: where the scheduler finds it (default: the chart's Service)",
    )
    add(parser, _OPTIONS)


def run(args: argparse.Namespace) -> int:
    if (args.tls_cert_file is None) != (args.tls_key_file is None):
        raise UsageError("--tls-cert-file and --tls-key-file go together")
    if args.print_config:
        return _print(args)
    if args.url is not None:
        raise UsageError("--url goes with --print-config")
    return _serve(args)


def _print(args: argparse.Namespace) -> int:
    from reconciler.kube.extender.configuration import configuration, service_url
    from reconciler.kube.yaml_text import dump_all

    url = args.url or service_url(args.port, tls=args.tls_cert_file is not None)
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: write http://HOST:PORT or https://HOST:PORT")
    kubeconfig = str(args.kubeconfig) if args.kubeconfig else None
    print(dump_all([configuration(url.rstrip("/"), kubeconfig=kubeconfig)]))
    return Exit.OK


def _serve(args: argparse.Namespace) -> int:
    from agent.daemon.log import log_to
    from reconciler.kube.client.access import open_cluster
    from reconciler.kube.extender.server import Serving, serving

    tls = None if args.tls_cert_file is None else _tls(args)
    log_to(sys.stderr, "info")
    api = open_cluster(args.context or "default", args.context, kubeconfig=args.kubeconfig)
    stop = threading.Event()
    try:
        with (
            endings(stop.set),
            serving(api, args.weights, args.label_prefix, Serving(_ANY, args.port, tls)),
        ):
            stop.wait()
    except OSError as error:
        raise UsageError(f"--port {args.port}: {error.strerror or error}") from None
    finally:
        api.close()
    return Exit.OK


_ANY = "0.0.0.0"  # noqa: S104 - of its pod: the scheduler connects to it


def _tls(args: argparse.Namespace) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(args.tls_cert_file, args.tls_key_file)
    except OSError as error:  # ssl.SSLError is one
        why: Any = error.strerror or error
        where = f"--tls-cert-file {args.tls_cert_file}, --tls-key-file {args.tls_key_file}"
        raise UsageError(f"{where}: {why}") from None
    return context
