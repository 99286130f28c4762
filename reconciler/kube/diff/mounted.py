"""ConfigMaps that pods still need although nothing declares them any more. Pure."""

from __future__ import annotations

from collections.abc import Set

from reconciler.api.meta import ObjectRef
from reconciler.kube.diff.payload import as_before
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, ObjectId, id_of


def still_mounted(
    wanted: ObjectSet, live: ObjectSet, left: ObjectSet, rolls: Set[ObjectRef]
) -> frozenset[ObjectId]:
    """ConfigMaps that are declared no more, and that templates which wait still name: a pod of such
    a template could not start again. `rolls`: services whose templates change now."""
    mounted: set[ObjectId] = set()
    refs = {left.ref(oid) for oid in left if oid.kind == "ConfigMap"} - rolls
    for oid in wanted if refs else ():
        if oid.kind == "Deployment" and wanted.ref(oid) in refs and oid in live:
            mounted |= _config_maps(as_before(wanted[oid], live[oid]))
    return frozenset(mounted)


def _config_maps(manifest: Manifest) -> frozenset[ObjectId]:
    """The ConfigMaps in a Deployment's template; none for other kinds."""
    if manifest["kind"] != "Deployment":
        return frozenset()
    template = manifest.get("spec", {}).get("template") or {}
    volumes = (template.get("spec") or {}).get("volumes") or ()
    names = {volume.get("configMap", {}).get("name") for volume in volumes}
    namespace = id_of(manifest).namespace
    return frozenset(ObjectId("", "ConfigMap", namespace, name) for name in names if name)
