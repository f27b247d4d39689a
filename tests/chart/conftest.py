"""A control plane that knows the Prometheus operator's kinds, and a namespace of one's own."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_kinds import kinds_served

_GROUP = "monitoring.coreos.com"
# As much of the operator's own definitions as tells ours from nonsense.
_TEXT = {"type": "string"}
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_RELABELING = {
    "type": "object",
    "properties": {
        "targetLabel": _TEXT,
        "replacement": _TEXT,
        "sourceLabels": {"type": "array", "items": _TEXT},
    },
}
_ENDPOINT = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("port", "path", "interval", "scheme"), _TEXT),
        "relabelings": {"type": "array", "items": _RELABELING},
    },
}
_RULE = {
    "type": "object",
    "required": ["expr"],
    "properties": {
        **dict.fromkeys(("alert", "record", "expr", "for", "keep_firing_for"), _TEXT),
        **{
            name: {"type": "object", "additionalProperties": _TEXT}
            for name in ("labels", "annotations")
        },
    },
}
_GROUP_OF_RULES = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": _TEXT,
        "interval": _TEXT,
        "rules": {"type": "array", "items": _RULE},
    },
}
_KINDS = {
    "ServiceMonitor": {
        "jobLabel": _TEXT,
        "endpoints": {"type": "array", "items": _ENDPOINT},
        "namespaceSelector": _OPEN,
        "selector": _OPEN,
    },
    "PrometheusRule": {"groups": {"type": "array", "items": _GROUP_OF_RULES}},
}


def _definition(kind: str, spec: object) -> dict[str, object]:
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": {"type": "object", "properties": spec}},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@contextlib.contextmanager
def _monitored(plane: ControlPlane) -> Iterator[ControlPlane]:
    items = [_definition(kind, spec) for kind, spec in _KINDS.items()]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.kubectl("apply", "-f", "-", input=given)
    names = [f"{kind.lower()}s.{_GROUP}" for kind in _KINDS]
    kinds_served(plane, names)
    yield plane
    plane.kubectl("delete", "--wait=false", "crd", *names)


@pytest.fixture(scope="session")
def monitored_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the kinds of the Prometheus operator."""
    with _monitored(control_plane) as plane:
        yield plane


@pytest.fixture
def empty_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Another one with these kinds, in which nobody has installed what deploy/ names."""
    with ControlPlane(tmp_path / "plane", scheduler=False) as plane, _monitored(plane):
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane, unique: str) -> Iterator[str]:
    """One that is removed with all that is in it; pods on nodes that do not exist are forced."""
    control_plane.kubectl("create", "namespace", unique)
    yield unique
    control_plane.kubectl("delete", "namespace", unique, "--wait=false")
    control_plane.kubectl(
        *("-n", unique, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
    )
