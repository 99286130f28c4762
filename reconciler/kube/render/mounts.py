"""The ConfigMaps that pods of a Deployment mount. Pure."""

from __future__ import annotations

from reconciler.kube.objects import Manifest, ObjectId, id_of


def config_maps(manifest: Manifest) -> frozenset[ObjectId]:
    """What the template names, of a Deployment; none of any other kind."""
    if manifest["kind"] != "Deployment":
        return frozenset()
    template = manifest.get("spec", {}).get("template") or {}
    volumes = (template.get("spec") or {}).get("volumes") or ()
    names = {volume.get("configMap", {}).get("name") for volume in volumes}
    namespace = id_of(manifest).namespace
    return frozenset(ObjectId("", "ConfigMap", namespace, name) for name in names if name)
