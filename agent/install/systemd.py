"""The agent as a systemd unit. Pure.

Models are processes of their own that outlive the agent. So only the agent itself is ended with the
unit (KillMode=process), a model that the kernel kills for lack of memory does not take the agent
with it (OOMPolicy=continue), and nothing limits or hides what the whole unit may use or see.
"""

from __future__ import annotations

from pathlib import Path

from agent.install import Step, Unit, Wanted

NAME = "fleet-agent.service"
_AT_BOOT = "models start when the machine boots"
_AT_LOGIN = (
    "models start when {user} logs in; to have them start at boot: loginctl enable-linger {user}"
)


def unit(wanted: Wanted, *, lingers: bool) -> Unit:
    """The unit file and its commands. `lingers`: the user's services run without a login."""
    systemctl = ("systemctl", "--user") if wanted.scope == "user" else ("systemctl",)
    at_boot = wanted.scope == "system" or lingers
    return Unit(
        file=_folder(wanted) / NAME,
        text=_text(wanted),
        load=(
            Step((*systemctl, "daemon-reload")),
            Step((*systemctl, "enable", NAME)),
            Step((*systemctl, "restart", NAME)),
        ),
        unload=(Step((*systemctl, "disable", "--now", NAME), may_fail=True),),
        after=(Step((*systemctl, "daemon-reload"), may_fail=True),),
        starts=_AT_BOOT if at_boot else _AT_LOGIN.format(user=wanted.user),
    )


def _folder(wanted: Wanted) -> Path:
    if wanted.scope == "system":
        return Path("/etc/systemd/system")
    return wanted.home / ".config" / "systemd" / "user"


def _text(wanted: Wanted) -> str:
    system = wanted.scope == "system"
    # A user's manager knows no network target of the machine.
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
        "\n"
        "[Install]\n"
        f"WantedBy={'multi-user.target' if system else 'default.target'}\n"
    )


def _quoted(word: str) -> str:
    """One word of a unit file: systemd splits at blanks and expands %."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    plain = escaped and not any(char.isspace() or char in "\"'\\;" for char in escaped)
    return escaped if plain else f'"{escaped}"'
