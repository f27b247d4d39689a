"""Upstream's example values give what upstream's chart makes of them, and ours beside it."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.support_helm import one, render, understood

pytestmark = pytest.mark.needs("go")

HERE = Path(__file__).parent
NAME = "local-static-provisioner"
EXPECTED: dict[str, Any] = yaml.safe_load((HERE / "expected.yaml").read_text("utf-8"))
PLAIN_CLASS = {
    "provisioner": "kubernetes.io/no-provisioner",
    "reclaimPolicy": "Delete",
    "default": False,
}
OURS = ("/tmp", "/var/lib/kubelet", "/var/lib/localvolume/records")
OUR_IMAGE = f"local-volume-provisioner:{metadata.version('local-volume-provisioner')}"
OUR_RESOURCES = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"memory": "1Gi"},
}
Object = dict[str, Any]


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def example(request: pytest.FixtureRequest) -> tuple[Mapping[str, Any], list[Object]]:
    """What upstream makes of one example, and what we make of it for a release of upstream's."""
    values = yaml.safe_load((HERE / "examples" / f"{request.param}.yaml").read_text("utf-8"))
    rendered = render({**values, "nameOverride": NAME}, release=NAME, namespace="default")
    expected = EXPECTED[request.param]
    if "classes" not in values:
        # The one class of the default, for which upstream's chart makes no StorageClass.
        expected = {**expected, "storageClasses": {"fast-disks": {}}}
    return expected, rendered


def test_every_example_is_expected() -> None:
    assert {path.stem for path in (HERE / "examples").iterdir()} == EXPECTED.keys()


def test_configuration(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    expected, objects = example
    data = one(objects, "ConfigMap", f"{NAME}-config")["data"]
    assert {key: yaml.safe_load(text) for key, text in data.items()} == expected["config"]


def test_storage_classes(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    expected, objects = example
    found = {}
    for each in objects:
        if each["kind"] == "StorageClass":
            assert each["volumeBindingMode"] == "WaitForFirstConsumer"
            annotations = each["metadata"].get("annotations", {})
            found[each["metadata"]["name"]] = {
                "provisioner": each["provisioner"],
                "reclaimPolicy": each["reclaimPolicy"],
                "default": annotations.get("storageclass.kubernetes.io/is-default-class") == "true",
            }
    wanted = expected.get(
        "storageClasses", {name: {} for name in expected["config"]["storageClassMap"]}
    )
    assert found == {name: {**PLAIN_CLASS, **more} for name, more in wanted.items()}


def test_daemonset(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    expected, objects = example
    daemonset = one(objects, "DaemonSet")
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
    assert daemonset["metadata"]["name"] == NAME
    assert daemonset["spec"]["selector"] == {"matchLabels": labels}
    assert daemonset["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1},
    }
    template = daemonset["spec"]["template"]
    assert labels.items() <= template["metadata"]["labels"].items()
    assert len(template["metadata"]["annotations"]["checksum/config"]) == 64
    pod = template["spec"]
    optional = ("affinity", "tolerations", "priorityClassName", "initContainers")
    assert {key: pod[key] for key in (*optional, "nodeSelector", "hostPID") if key in pod} == {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "hostPID": False,
        **expected.get("pod", {}),
    }
    assert pod["serviceAccountName"] == NAME


def test_container(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    expected, objects = example
    (container,) = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "provisioner"
    assert container["securityContext"]["privileged"] is True
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    assert container["livenessProbe"] == {
        "tcpSocket": {"port": "metrics"},
        "initialDelaySeconds": 10,
        "periodSeconds": 60,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    }
    assert container["env"] == [
        {"name": "MY_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "MY_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "MY_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "JOB_CONTAINER_IMAGE", "value": container["image"]},
        {"name": "KUBELET_DIR", "value": "/var/lib/kubelet"},
        {"name": "RECORDS_DIR", "value": "/var/lib/localvolume/records"},
        {"name": "MUST_BE_CONFINED", "value": "true"},
    ]
    found = {key: container[key] for key in ("resources", "imagePullPolicy") if key in container}
    if container["image"] != OUR_IMAGE:
        found["image"] = container["image"]
    assert found == {"resources": OUR_RESOURCES, **expected.get("container", {})}
    assert container["args"] == ["agent", "--log-format=text", *expected.get("args", [])]
    understood(container["args"])


def test_mounts(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    """Ours are all below /run, or scratch, or the kubelet's, or the records."""
    expected, objects = example
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {each.pop("name"): each for each in pod["volumes"]}
    mounts = {each.pop("mountPath"): each for each in pod["containers"][0]["volumeMounts"]}
    wanted: dict[str, Any] = {
        "/etc/provisioner/config": {"name": "provisioner-config", "readOnly": True},
        "/dev": {"name": "provisioner-dev"},
    }
    sources: dict[str, Any] = {
        "provisioner-config": {"configMap": {"name": f"{NAME}-config"}},
        "provisioner-dev": {"hostPath": {"path": "/dev"}},
        **expected.get("volumes", {}),
    }
    for name, each in expected["config"]["storageClassMap"].items():
        wanted[each["mountDir"]] = {"name": name, "mountPropagation": "HostToContainer"}
        sources[name] = {"hostPath": {"path": each["hostDir"]}}
    wanted.update(expected.get("mounts", {}))
    ours = {path for path in mounts if path in OURS or path.startswith("/run/")}
    assert {path: mount for path, mount in mounts.items() if path not in ours} == wanted
    assert {name: volumes[name] for name in sources} == sources
    assert volumes.keys() - sources.keys() == {mounts[path]["name"] for path in ours}


def test_the_rest(example: tuple[Mapping[str, Any], list[Object]]) -> None:
    expected, objects = example
    kinds = {each["kind"] for each in objects}
    assert set(expected.get("also", ())) <= kinds
    assert not set(expected.get("never", ())) & kinds
    assert one(objects, "ServiceAccount", NAME)["metadata"]["namespace"] == "default"
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    understood(container["args"])
    if cleanup := expected.get("controller"):
        assert container["resources"] == cleanup["resources"]
        assert set(cleanup["args"]) <= set(container["args"])
    if "ServiceMonitor" in expected.get("also", ()):
        monitor = one(objects, "ServiceMonitor", NAME)
        assert monitor["metadata"]["namespace"] == "default"
        (endpoint,) = monitor["spec"]["endpoints"]
        assert {"port": "metrics", "interval": "10s", "scheme": "http"}.items() <= endpoint.items()
        service = one(objects, "Service", NAME)
        selector = one(objects, "DaemonSet")["spec"]["selector"]["matchLabels"]
        assert service["spec"]["selector"] == selector
        assert service["spec"]["ports"][0]["port"] == 8080
        assert (
            monitor["spec"]["selector"]["matchLabels"].items()
            <= service["metadata"]["labels"].items()
        )
