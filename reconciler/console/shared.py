"""Options that commands of both programs have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from reconciler.api.nodelabels import DEFAULT_PREFIX
from reconciler.console import value
from reconciler.console.option import Option

if TYPE_CHECKING:
    from reconciler.agents.credentials import AgentCredentials

LABEL_PREFIX = Option(
    "label-prefix",
    "what the names of labels begin with",
    "PREFIX",
    read=value.label_prefix,
    fallback=DEFAULT_PREFIX,
)
STATE_DIR = Option("state-dir", "where models, records and logs are kept", "DIR")
AGENT_OPTIONS = (  # how the agents of other nodes know us
    Option(
        "agent-token-file",
        "a bearer token and below it where it may go, or a folder with NODE.token for each",
        "FILE",
        read=value.file_path,
    ),
    Option("agent-cert-file", "our client certificate", "FILE", read=value.file_path),
    Option("agent-key-file", "its key", "FILE", read=value.file_path),
)
API_KEY_FILE = Option(
    "api-key-file",
    "the key for clients where the node says expose: key (default: in the state directory)",
    "FILE",
    read=value.file_path,
)
SERVICE_PORTS = Option(
    "service-ports",
    "where a service gets its port whose endpoint states none",
    "FIRST-LAST",
    read=value.port_range,
    fallback=str(value.ALL_SERVICE_PORTS),
)
RUNTIME = Option(
    "runtime", "for services that name none (default: llama-server)", "NAME", read=value.runtime
)
OFFERED_RUNTIMES = Option(
    "runtimes", "what this machine can run, with commas between", "NAMES", read=value.runtimes
)
HOST_IP = Option(
    "host-ip", "the address of this machine for clients elsewhere", "ADDRESS", read=value.ip_address
)
MEMORY_FRACTION = Option(
    "memory-fraction",
    "share of memory for models, where the fleet states none (default: 0.67 up to 36Gi, else 0.75)",
    "SHARE",
    read=value.fraction,
)
OFFLINE = Option(
    "offline",
    "read no headers of models over the network; what was read before counts",
    metavar=None,
)
INTERVAL = Option(
    "interval",
    "how often the fleet's source is asked",
    "TIME",
    read=value.interval,
    fallback="30s",
    stated_variable="FLEET_POLL_INTERVAL",
)
DEBOUNCE = Option(
    "debounce",
    "with --watch: how long files must be still before anything is removed",
    "TIME",
    read=value.interval,
    fallback="2s",
)
GIT_OPTIONS = (
    Option(
        "git-token-file", "a file with the token for an https remote", "FILE", read=value.file_path
    ),
    Option("ssh-key-file", "the private key for an ssh remote", "FILE", read=value.file_path),
    Option(
        "known-hosts-file",
        "the host keys that are trusted, for an ssh remote",
        "FILE",
        read=value.file_path,
    ),
    Option(
        "ca-file",
        "certificates that are trusted, for an https remote",
        "FILE",
        read=value.file_path,
    ),
)
DEFAULTS = (  # placement.pods has the same variables: what is taken is said by them
    Option(
        "default-backend-image",
        "the image of a service in pods that names no runtime, where neither it nor the Fleet"
        " states an image",
        "IMAGE",
        read=value.image,
        stated_variable="DEFAULT_BACKEND_IMAGE",
    ),
    Option(
        "model-cache-path",
        "a folder of cluster nodes that keeps the models of pools that state no `cache`, if the"
        " Fleet's hostCaches lists it",
        "DIR",
        read=value.node_folder,
        stated_variable="MODEL_CACHE_PATH",
        is_shared=True,
    ),
)
REPOSITORY = Option(
    "repository",
    "the repository's page, which links in markdown lead to, and whose pull request is commented"
    " (default: what a CI job says, else the git remote)",
    "[FORGE=]URL",
    read=value.repository,
)
KUBECONFIG = Option(
    "kubeconfig",
    "how to reach the cluster (default: $KUBECONFIG, ~/.kube/config, or a pod's own)",
    "FILE",
    read=value.file_path,
)
CONTEXT = Option("context", "of the kubeconfig (default: its current one)", "NAME")
LEASE_DURATION = Option(
    "lease-duration",
    "how long others leave the fleet to a reconciler that is silent; it renews much sooner",
    "TIME",
    read=value.lease_duration,
    fallback="15s",
)
LISTEN_OPTIONS = (
    Option(
        "listen",
        "serve the page, /healthz, /readyz, /metrics and the webhook there (default: nothing is"
        " served)",
        "HOST:PORT",
        read=value.listen_address,
    ),
    Option(
        "webhook-secret-file",
        "what forges know us by, one secret a line; without it nobody can wake us",
        "FILE",
        read=value.file_path,
    ),
    Option(
        "page-token-file",
        "what the page asks a browser for; without it the page is shown on loopback alone",
        "FILE",
        read=value.file_path,
    ),
)


def credentials_of(args: argparse.Namespace) -> AgentCredentials:
    """What agents are to know us by. Raises UsageError for a file that is not there."""
    from reconciler.agents.credentials import AgentCredentials
    from reconciler.api.errors import UsageError

    if args.agent_key_file is not None and args.agent_cert_file is None:
        raise UsageError("--agent-key-file goes with --agent-cert-file")
    for option in AGENT_OPTIONS:
        path = getattr(args, option.attribute)
        if path is not None and not path.exists():
            raise UsageError(f"--{option.name} {path}: there is no such file")
    return AgentCredentials(
        token_file=args.agent_token_file,
        ca_file=args.ca_file,
        cert_file=args.agent_cert_file,
        key_file=args.agent_key_file,
    )
