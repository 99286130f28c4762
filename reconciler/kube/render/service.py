"""The Service: the one name and port under which clients reach the pods. Pure."""

from __future__ import annotations

from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata, selector
from reconciler.kube.render.subject import Subject

PORT_NAME = "http"  # of the engine's container: the Service leads there by name


def service(subject: Subject) -> Manifest:
    port: dict[str, object] = {
        "name": PORT_NAME,
        "port": subject.port,
        "protocol": "TCP",
        "targetPort": PORT_NAME,
    }
    if node_port := subject.placed.service.spec.endpoint.node_port:
        port["nodePort"] = node_port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(subject.placed, subject.name),
        "spec": {
            "type": subject.placed.service.spec.endpoint.type,
            "selector": selector(subject.placed),
            "ports": [port],
        },
    }
