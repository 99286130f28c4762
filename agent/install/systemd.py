"""The agent as a systemd unit. Pure.

Models are processes of their own that outlive the agent. So only the agent itself is ended with the
unit (KillMode=process), a model that the kernel kills for lack of memory does not take the agent
with it (OOMPolicy=continue), and nothing limits or hides what the whole unit may use or see.
"""

from __future__ import annotations

from pathlib import Path

from agent.install import ManagerCommand, ServiceSpec, ServiceUnit

NAME = "fleet-agent.service"
_AT_BOOT = "models start when the machine boots"
_AT_LOGIN = (
    "models start when {user} logs in; to have them start at boot: loginctl enable-linger {user}"
)
# Its errors where it does not run, as in most containers, and where a user has no session, as
# under su, sudo or cron.
_NOT_IN_CHARGE = "not been booted with systemd"
_NO_BUS = "Failed to connect to"
_BY_ANOTHER = (
    "start `fleet-agent run` with {another} service manager, one that ends only the agent itself"
    " and leaves its children"
)


def unit(wanted: ServiceSpec, *, lingers: bool) -> ServiceUnit:
    """The unit file and its commands. `lingers`: the user's services run without a login."""
    systemctl = ("systemctl", "--user") if wanted.scope == "user" else ("systemctl",)
    at_boot = wanted.scope == "system" or lingers
    return ServiceUnit(
        file=_folder(wanted) / NAME,
        text=_text(wanted),
        load=(
            ManagerCommand((*systemctl, "daemon-reload")),
            ManagerCommand((*systemctl, "enable", NAME)),
            ManagerCommand((*systemctl, "restart", NAME)),
        ),
        unload=(ManagerCommand((*systemctl, "disable", "--now", NAME), may_fail=True),),
        after=(ManagerCommand((*systemctl, "daemon-reload"), may_fail=True),),
        starts=_AT_BOOT if at_boot else _AT_LOGIN.format(user=wanted.user),
        remedies=_remedies(wanted),
    )


def _remedies(wanted: ServiceSpec) -> tuple[tuple[str, str], ...]:
    not_in_charge = (_NOT_IN_CHARGE, _BY_ANOTHER.format(another="this machine's own"))
    if wanted.scope == "system":
        return (not_in_charge,)
    no_session = (
        f"{wanted.user} has no session here that systemd knows: either"
        " `sudo fleet-agent install --system` with the same options, for a service of the machine;"
        f" or `sudo loginctl enable-linger {wanted.user}`, then log in as {wanted.user} itself, not"
        f" by su or sudo, and install again; or {_BY_ANOTHER.format(another='another')}"
    )
    return (not_in_charge, (_NO_BUS, no_session))


# What costs engines nothing. In a user's own manager it would bind nobody: a process there can ask
# that manager for another one without it. nvidia-modprobe makes device files that CUDA needs, and
# is setuid, so it runs before.
_HARDENED = (
    "# No engine gains rights by a program that has more. Device files are made before.\n"
    "ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 0\n"
    "NoNewPrivileges=yes\n"
    "RestrictSUIDSGID=yes\n"
    "LockPersonality=yes\n"
)


def _folder(wanted: ServiceSpec) -> Path:
    if wanted.scope == "system":
        return Path("/etc/systemd/system")
    return wanted.home / ".config" / "systemd" / "user"


def _text(wanted: ServiceSpec) -> str:
    system = wanted.scope == "system"
    # A user's manager has no network target of the machine.
    network = "Wants=network-online.target\nAfter=network-online.target\n" if system else ""
    owner = f"User={wanted.user}\n" if system else ""
    return (
        "# Written by `fleet-agent install`, which writes it again; `fleet-agent uninstall`"
        " removes it.\n"
        "[Unit]\n"
        "Description=fleet-agent: keeps the models of this machine as its fleet says\n"
        f"{network}"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        f"{owner}"
        f"ExecStart={' '.join(_quoted(word.replace('$', '$$')) for word in wanted.argv)}\n"
        "ExecReload=/bin/kill -HUP $MAINPID\n"
        f"Environment={_quoted(f'PATH={wanted.path}')}\n"
        "# glibc keeps memory apart for each thread: 5 MiB less for the agent (not the models).\n"
        "Environment=MALLOC_ARENA_MAX=2\n"
        "Restart=always\n"
        "RestartSec=5\n"
        "# Models go on when the agent stops or is restarted.\n"
        "KillMode=process\n"
        "OOMPolicy=continue\n"
        f"{_HARDENED if system else ''}"
        "\n"
        "[Install]\n"
        f"WantedBy={'multi-user.target' if system else 'default.target'}\n"
    )


def _quoted(word: str) -> str:
    """One word of a unit file: systemd splits at blanks and expands %."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    plain = escaped and not any(char.isspace() or char in "\"'\\;" for char in escaped)
    return escaped if plain else f'"{escaped}"'
