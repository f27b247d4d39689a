"""The chart's schema knows each field of the objects of Kubernetes that values may hold whole."""

import json
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import CHART

pytestmark = pytest.mark.needs("controlplane")

DEFINITIONS: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))[
    "definitions"
]


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> dict[str, Any]:
    schemas = control_plane.request("GET", "/openapi/v3/api/v1")["components"]["schemas"]
    return {name.rpartition(".")[2]: schema for name, schema in schemas.items()}


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("volume", "Volume"),
        ("volumeMount", "VolumeMount"),
        ("container", "Container"),
        ("env", "EnvVar"),
        ("probe", "Probe"),
        ("securityContext", "SecurityContext"),
        ("resources", "ResourceRequirements"),
    ],
)
def test_no_field_is_refused_that_the_api_server_knows(
    served: dict[str, Any], definition: str, kind: str
) -> None:
    known = served[kind]["properties"].keys()
    assert known - DEFINITIONS[definition]["properties"].keys() == set()
