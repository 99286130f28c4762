"""The conversation before definitions of another owner become ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.console.edge import tell
from reconciler.report.terminal import counted, printable

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.objects import Manifest


def take_over(api: ApiServer, *, accept_field_loss: bool) -> bool:
    """Whether they are ours now. Nothing is written before every question is answered and a backup
    is on the disk. Raises ClusterError, OSError."""
    from reconciler.kube.adoption.controllers import alive
    from reconciler.kube.crd.definitions import crds
    from reconciler.kube.install.takeover import held, losses, replace_definitions, write_backup
    from reconciler.runtimes import RUNTIMES

    if living := alive(api):
        for each in living:
            _say(str(each))
        _say("nothing was written: two controllers would fight about the same objects")
        return False
    installation = held(api)
    for definition in installation.definitions:
        _say(_listed_elsewhere(definition))
    misfits = installation.misfits()
    for line in losses(misfits):
        _say(line)
    if misfits and not accept_field_loss:
        objects = len({misfit.oid for misfit in misfits})
        _say(
            f"nothing was written: {counted('field', len(misfits))} of"
            f" {counted('object', objects)} would be lost or refused; change the objects, or go"
            " on with --accept-field-loss"
        )
        return False
    backup = write_backup(Path.cwd(), api.name, installation)
    definitions = counted("definition", len(installation.definitions))
    _say(f"{backup}: backup of {definitions} and {counted('object', len(installation.objects))}")
    wanted = {made["metadata"]["name"]: made for made in crds(RUNTIMES)}
    replace_definitions(api, installation.definitions, wanted)
    for definition in installation.definitions:
        print(printable(f"taken over CustomResourceDefinition {definition['metadata']['name']}"))
    return True


def _listed_elsewhere(definition: Manifest) -> str:
    """What its former owner may still do to it."""
    from reconciler.kube.install.writer import owner_of

    name, owner = definition["metadata"]["name"], owner_of(definition)
    if owner.startswith("Helm"):
        return (
            f"{name}: {owner} still lists it: helm uninstall would delete it with every object;"
            " make Helm forget the release instead, `kubectl -n NAMESPACE delete secret -l"
            " owner=helm,name=RELEASE`"
        )
    return f"{name} was {owner}"


def _say(text: str) -> None:
    tell(printable(text))
