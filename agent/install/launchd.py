"""The agent as a launchd job of macOS. Pure.

Models are processes of their own that outlive the agent: AbandonProcessGroup keeps launchd from
ending them with it.
"""

from __future__ import annotations

import plistlib
from pathlib import Path

from agent.install import ManagerCommand, ServiceSpec, ServiceUnit

LABEL = "dev.llmkube.fleet-agent"
_ENDS_S = 60.0  # the agent ends within seconds; launchd kills it after 20
_BEGINS_S = 10.0


def unit(wanted: ServiceSpec) -> ServiceUnit:
    """The property list and its commands."""
    system = wanted.scope == "system"
    file = _folder(wanted) / f"{LABEL}.plist"
    domain = "system" if system else f"gui/{wanted.uid}"
    leave = (
        ManagerCommand(("launchctl", "bootout", f"{domain}/{LABEL}"), may_fail=True),
        # bootout returns while the agent still ends; until then launchd refuses a job of that name.
        ManagerCommand(
            ("launchctl", "print", f"{domain}/{LABEL}"), must_fail=True, tried_for_s=_ENDS_S
        ),
    )
    begin = ManagerCommand(("launchctl", "bootstrap", domain, str(file)), tried_for_s=_BEGINS_S)
    return ServiceUnit(
        file=file,
        text=_text(wanted),
        load=(*leave, begin),
        unload=leave,
        after=(),
        folders=(wanted.log.parent,),  # launchd refuses a job whose log it cannot open
        starts="models start when the machine boots"
        if system
        else f"models start when {wanted.user} logs in; use --system to have them start at boot",
    )


def _folder(wanted: ServiceSpec) -> Path:
    if wanted.scope == "system":
        return Path("/Library/LaunchDaemons")
    return wanted.home / "Library" / "LaunchAgents"


def _text(wanted: ServiceSpec) -> str:
    job: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": list(wanted.argv),
        "EnvironmentVariables": {"PATH": wanted.path},
        "RunAtLoad": True,
        "KeepAlive": True,
        "AbandonProcessGroup": True,
        "ThrottleInterval": 5,
        # Without it macOS slows down processes without a window, models included.
        "ProcessType": "Interactive",
        "StandardOutPath": str(wanted.log),
        "StandardErrorPath": str(wanted.log),
    }
    if wanted.scope == "system":
        job["UserName"] = wanted.user
    return plistlib.dumps(job, sort_keys=False).decode()
