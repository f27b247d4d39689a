"""Wrong values are refused by name, and what may be said is what agent and chart know."""

import itertools
import json
import re
from typing import Any

import pytest
import yaml

from localvolume.config import diskkeys, flexkeys, poolkeys, schema
from localvolume.config.disks import TRANSPORTS
from tests.chart.support_helm import CHART, ROOT, Refused, render_text

pytestmark = pytest.mark.needs("go")

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
CLASS = {"name": "fast", "hostDir": "/mnt/fast"}
LVM = {"backend": "lvm", "volumeGroup": "vg"}
DIGEST = "sha256:" + "0" * 64


def classes(**more: Any) -> dict[str, Any]:
    return {"classes": [{**CLASS, **more}]}


WRONG: list[tuple[dict[str, Any], str]] = [
    # Upstream's keys, misspelled or of a wrong kind.
    ({"tolerationz": []}, "tolerationz"),
    ({"daemonset": {"image": "x"}}, "daemonset"),
    ({"common": {"useNodeNameOnly": True}}, "common"),
    (classes(hostdir="/mnt"), "hostdir"),
    ({"classes": [{"name": "fast"}]}, "hostDir"),
    ({"classes": [{"hostDir": "/mnt/fast"}]}, "name"),
    (classes(hostDir="mnt/fast"), "/classes/0/hostDir"),
    (classes(mountDir="fast"), "/classes/0/mountDir"),
    (classes(volumeMode="block"), "/classes/0/volumeMode"),
    (classes(accessMode="RWO"), "/classes/0/accessMode"),
    (classes(blockCleanerCommand="/scripts/shred.sh"), "/classes/0/blockCleanerCommand"),
    (classes(storageClass={"reclaimPolicy": "Recycle"}), "/classes/0/storageClass/reclaimPolicy"),
    (classes(storageClass={"isDefault": True}), "isDefault"),
    (classes(storageClass="yes"), "/classes/0/storageClass"),
    ({"classes": {"fast": CLASS}}, "/classes"),
    ({"privileged": "yes"}, "/privileged"),
    ({"setPVOwnerRef": "true"}, "/setPVOwnerRef"),
    ({"useJobForCleaning": "yes"}, "/useJobForCleaning"),
    ({"minResyncPeriod": "an hour"}, "/minResyncPeriod"),
    ({"labelsForPV": {"a": True}}, "/labelsForPV/a"),
    ({"nodeLabels": {"zone": "a"}}, "/nodeLabels"),
    ({"imagePullPolicy": "always"}, "/imagePullPolicy"),
    ({"image": ""}, "/image"),
    ({"image": {"repository": "x"}}, "/image"),
    ({"imageDigest": "sha256:" + "0" * 63}, "/imageDigest"),
    ({"imageDigest": "sha256:" + "A" * 64}, "/imageDigest"),
    ({"imageDigest": ""}, "/imageDigest"),
    ({"updateStrategy": {"type": "Recreate"}}, "/updateStrategy/type"),
    ({"serviceMonitor": {"enabled": "true"}}, "/serviceMonitor/enabled"),
    ({"serviceMonitor": {"interval": 10}}, "/serviceMonitor/interval"),
    ({"rbac": {"pspEnabled": True}}, "pspEnabled"),
    ({"serviceAccount": {"annotations": {}}}, "annotations"),
    ({"nodeCleanupController": {"enabled": True, "image": "x"}}, "image"),
    # Kubernetes' own objects.
    ({"resources": {"requets": {"cpu": "10m"}}}, "additional properties 'requets'"),
    ({"resources": {"limit": {"memory": "1Gi"}}}, "additional properties 'limit'"),
    ({"resources": {"limits": {"memroy": "1Gi"}}}, "memroy"),
    ({"resources": {"limits": {"memory": "1 Gi"}}}, "/resources/limits/memory"),
    ({"resources": {"requests": {"cpu": True}}}, "/resources/requests/cpu"),
    ({"controller": {"resources": {"limit": {}}}}, "additional properties 'limit'"),
    ({"nodeCleanupController": {"resources": {"limit": {}}}}, "additional properties 'limit'"),
    ({"csi": {"snapshotController": {"resources": {"limits": {"cpus": 1}}}}}, "cpus"),
    ({"jobResources": {"limits": {"cpus": 1}}}, "cpus"),
    ({"tolerations": [{"key": "a", "operator": "Exist"}]}, "/tolerations/0/operator"),
    ({"tolerations": [{"key": "a", "efect": "NoSchedule"}]}, "efect"),
    ({"controller": {"tolerations": [{"keys": "a"}]}}, "keys"),
    ({"affinity": {"nodeAffinities": {}}}, "nodeAffinities"),
    (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
    ),
    ({"affinity": {"podAntiAffinity": {"required": []}}}, "required"),
    ({"livenessProbe": {"initialDelay": 3}}, "initialDelay"),
    ({"securityContext": {"priviledged": True}}, "priviledged"),
    ({"updateStrategy": {"rollingUpdate": {"maxUnavailabel": 1}}}, "maxUnavailabel"),
    ({"imagePullSecrets": ["pull"]}, "/imagePullSecrets/0"),
    ({"rbac": {"extraRules": [{"apiGroup": ""}]}}, "apiGroup"),
    ({"additionalEnv": [{"key": "LANG"}]}, "key"),
    ({"additionalVolumes": [{"hostPath": {"path": "/a"}}]}, "name"),
    ({"additionalVolumeMounts": [{"name": "a", "path": "/a"}]}, "path"),
    ({"additionalVolumes": [{"name": "a", "hostpath": {"path": "/a"}}]}, "hostpath"),
    ({"additionalVolumes": [{"name": "a", "hostPath": {}}]}, "path"),
    ({"additionalVolumes": [{"name": "a", "emptyDir": {}, "secret": {}}]}, "maxProperties"),
    ({"initContainers": [{"image": "busybox"}]}, "name"),
    ({"initContainers": [{"name": "a", "img": "busybox"}]}, "img"),
    ({"initContainers": [{"name": "a", "command": "sleep"}]}, "/initContainers/0/command"),
    ({"initContainers": [{"name": "a", "volumeMounts": [{"name": "b"}]}]}, "mountPath"),
    ({"initContainers": [{"name": "a", "securityContext": {"user": 0}}]}, "user"),
    ({"initContainers": [{"name": "a", "resources": {"limit": {}}}]}, "limit"),
    ({"initContainers": [{"name": "a", "env": [{"key": "b"}]}]}, "key"),
    ({"serviceMonitor": {"relabelings": [{"target": "a"}]}}, "target"),
    ({"serviceMonitor": {"tlsConfig": {"server": "a"}}}, "server"),
    ({"networkPolicy": {"metricsFrom": [{"namespace": "a"}]}}, "namespace"),
    (classes(selector=[{"matchExpression": []}]), "matchExpression"),
    (classes(allowedTopologies=[{"matchLabels": {}}]), "matchLabels"),
    # Ours.
    (classes(firstUse="always"), "/classes/0/firstUse"),
    (classes(cleaningConcurrency=0), "/classes/0/cleaningConcurrency"),
    (classes(cleaningTimeout="5"), "/classes/0/cleaningTimeout"),
    ({"pools": {"Fast": LVM}}, "Fast"),
    ({"pools": {"fast": {**LVM, "volumegroup": "vg"}}}, "volumegroup"),
    ({"pools": {"fast": {"hostDir": "/p", "backend": "zfs"}}}, "/pools/fast/backend"),
    ({"pools": {"fast": {"hostDir": "/p", "overbook": 0.5}}}, "/pools/fast/overbook"),
    ({"pools": {"fast": {"hostDir": "/p", "reserve": 10}}}, "/pools/fast/reserve"),
    ({"pools": {"fast": {"hostDir": "/p", "undoPeriod": 1}}}, "/pools/fast/undoPeriod"),
    ({"pools": [LVM]}, "/pools"),
    ({"flexvolume": {"driver": "LVM"}}, "/flexvolume/driver"),
    ({"flexvolume": {"volumeGroups": ["vg"]}}, "volumeGroups"),
    ({"disks": {"approved": ["sha256:abc"]}}, "/disks/approved/0"),
    ({"disks": {"filters": [{"name": "a", "class": "b", "match": {"size": "1Ti"}}]}}, "size"),
    ({"dynamicStorageClasses": [{"name": "x", "parameters": {"uid": 1}}]}, "parameters/uid"),
    ({"dynamicStorageClasses": [{"name": "x", "reclaimpolicy": "Delete"}]}, "reclaimpolicy"),
    ({"controller": {"replicas": "two"}}, "/controller/replicas"),
    ({"controller": {"storageClassNames": "fast"}}, "/controller/storageClassNames"),
    ({"controller": {"replica": 1}}, "replica"),
    ({"logFormat": "xml"}, "/logFormat"),
    ({"docsUrl": "example.org"}, "/docsUrl"),
    ({"docsUrl": "https://example.org/?{{ $labels.node }}"}, "/docsUrl"),
    ({"claimsInMetrics": "yes"}, "/claimsInMetrics"),
    ({"csi": {"enabled": "yes"}}, "/csi/enabled"),
    ({"csi": {"enable": True}}, "enable"),
    ({"csi": {"ioLimits": "yes"}}, "/csi/ioLimits"),
    ({"csi": {"maxVolumesPerNode": -1}}, "/csi/maxVolumesPerNode"),
    ({"csi": {"snapshotController": {"replicas": 0}}}, "/csi/snapshotController/replicas"),
    ({"csi": {"snapshotController": {"tag": "v8"}}}, "tag"),
    ({"csi": {"snapshotClasses": ["x"]}}, "/csi/snapshotClasses/0"),
    (
        {"csi": {"enabled": True, "snapshotClasses": [{"name": "x", "deletionPolicy": "Keep"}]}},
        "/csi/snapshotClasses/0/deletionPolicy",
    ),
    (
        {
            "csi": {
                "enabled": True,
                "snapshotClasses": [{"name": "x", "parameters": {"fullCopies": "yes"}}],
            }
        },
        "/csi/snapshotClasses/0/parameters/fullCopies",
    ),
    (
        {
            "csi": {
                "enabled": True,
                "snapshotClasses": [{"name": "x", "parameters": {"snapshotReserve": "0%"}}],
            }
        },
        "/csi/snapshotClasses/0/parameters/snapshotReserve",
    ),
    ({"metrics": {"secured": True}}, "secured"),
    ({"metrics": {"secure": True}}, "metrics.secure needs metrics.secretName"),
    ({"metrics": {"secretName": "ours"}}, "metrics.secretName and serviceMonitor.tlsConfig need"),
    (
        {
            "metrics": {"secure": True, "secretName": "ours"},
            "serviceMonitor": {"enabled": True, "namespace": "monitoring"},
        },
        "a ServiceMonitor reads no Secret of another namespace",
    ),
    ({"confinement": {"enable": False}}, "enable"),
    ({"networkPolicy": {"apiServerPorts": [0]}}, "/networkPolicy/apiServerPorts/0"),
    ({"replaces": {"kutti": {"rootPath": "kutti"}}}, "/replaces/kutti/rootPath"),
    ({"replaces": {"elastic": {"driver": "lvm"}}}, "/replaces/elastic/driver"),
    # Right one by one, and wrong together.
    (
        {"image": f"registry.example/ours@{DIGEST}", "imageDigest": DIGEST},
        "imageDigest: image has a digest already, registry.example/ours@sha256:0",
    ),
    (
        {"image": '{{ printf "ours%s" "@" }}' + DIGEST, "imageDigest": DIGEST},
        "imageDigest: image has a digest already, ours@sha256:0",
    ),
    ({"enableWindows": True}, "enableWindows: there is no agent for Windows"),
    ({"classes": [CLASS, CLASS]}, "classes: fast is there twice"),
    ({**classes(), "dynamicStorageClasses": [{"name": "fast"}]}, "dynamicStorageClasses: fast"),
    (
        {
            "classes": [
                {**CLASS, "mountDir": "/m"},
                {**CLASS, "name": "b", "hostDir": "/b", "mountDir": "/m"},
            ]
        },
        "/mnt/fast and /b, are to be mounted at /m",
    ),
    (
        {"classes": [{**CLASS, "name": "pool-a"}], "pools": {"a": {"hostDir": "/p"}}},
        "the name pool-a",
    ),
    (
        {"pools": {"a": {"backend": "lvm", "volumeGroupPattern": "(?!root)x"}}},
        "mustRegexMatch .volumeGroupPattern",
    ),
    ({"confinement": {"dynamicDirectories": ["mnt"]}}, "/confinement/dynamicDirectories/0"),
    ({"confinement": {"directories": {"fast": "mnt"}}}, "/confinement/directories/fast"),
    ({"privileged": False, "flexvolume": {"driver": "bindmount"}}, "flexvolume needs privileged"),
    ({"privileged": False, "disks": {"approved": []}}, "disks needs privileged"),
    ({"mountDevVolume": False, "disks": {"approved": []}}, "disks needs mountDevVolume"),
    ({"privileged": False, "csi": {"enabled": True}}, "csi.enabled needs privileged"),
    ({"mountDevVolume": False, "csi": {"enabled": True}}, "csi.enabled needs mountDevVolume"),
    (
        {"csi": {"enabled": True}, "updateStrategy": {"rollingUpdate": {"maxSurge": "10%"}}},
        "csi.enabled allows no updateStrategy.rollingUpdate.maxSurge",
    ),
    (
        {"dynamicStorageClasses": [{"name": "x", "provisioner": "csi.localvolume.dev"}]},
        "x has the provisioner csi.localvolume.dev, which needs csi.enabled",
    ),
    ({"csi": {"snapshotClasses": [{"name": "x"}]}}, "csi.snapshotClasses: x needs csi.enabled"),
    ({"csi": {"ioLimits": True}}, "csi.ioLimits needs csi.enabled"),
    ({"csi": {"maxVolumesPerNode": 5}}, "csi.maxVolumesPerNode needs csi.enabled"),
    (
        {"csi": {"snapshotController": {"enabled": True}}},
        "csi.snapshotController needs csi.enabled",
    ),
    (
        {"pools": {"x": {"hostDir": "/x", "inline": {"largest": "1Gi", "total": "9Gi"}}}},
        "pools: x has inline, which needs csi.enabled",
    ),
    (
        {"csi": {"enabled": True, "snapshotClasses": [{"name": "x"}, {"name": "x"}]}},
        "csi.snapshotClasses: x is there twice",
    ),
    (
        {"removeNodeNotReadyTaint": True, "provisionerNotReadyNodeTaintKey": ""},
        "removeNodeNotReadyTaint needs provisionerNotReadyNodeTaintKey",
    ),
    (
        {"replaces": {"elastic": {"driver": "LVM"}}, "flexvolume": {"volumeGroup": "vg"}},
        "replaces.elastic",
    ),
    ({"replaces": {"localPath": {"config": "{"}}}, "replaces.localPath.config is no JSON"),
]


@pytest.mark.parametrize(("values", "name"), WRONG, ids=[name for _, name in WRONG])
def test_wrong_values_are_refused_by_name(values: dict[str, Any], name: str) -> None:
    with pytest.raises(Refused, match=re.escape(name)):
        render_text(values)


def _said(node: dict[str, Any]) -> dict[str, Any]:
    """The properties of an object that is defined elsewhere in the schema."""
    found: dict[str, Any] = SCHEMA["definitions"][node["$ref"].rsplit("/", 1)[1]]["properties"]
    return found


def test_the_schema_knows_the_agents_keys() -> None:
    """A key that the agent learns is a key that the chart passes on."""
    top = SCHEMA["properties"]
    assert _said(top["pools"]["additionalProperties"]).keys() == {key.name for key in poolkeys.KEYS}
    assert top["flexvolume"]["properties"].keys() == {key.name for key in flexkeys.KEYS}
    disks = top["disks"]["properties"]
    assert disks.keys() == {key.name for key in diskkeys.KEYS}
    filters = disks["filters"]["items"]["properties"]
    assert filters.keys() == {key.name for key in diskkeys.FILTER_KEYS}
    assert filters["match"]["properties"].keys() == {key.name for key in diskkeys.MATCH_KEYS}
    assert filters["match"]["properties"]["transport"]["enum"] == list(TRANSPORTS)
    of_a_class = {key.name for key in schema.class_keys(host_checks=False)}
    assert _said(top["classes"]["items"]).keys() == {
        *of_a_class, "name", "allowedTopologies", "storageClass"
    }  # fmt: skip
    renamed = {"storageClassMap": "classes", "nodeLabelsForPV": "nodeLabels"}
    renamed["jobTolerations"] = "tolerations"
    agents = {renamed.get(key.name, key.name) for key in schema.top_keys(host_checks=False)}
    # The API server takes no such PersistentVolume any more; upstream's chart has no such value.
    assert agents - top.keys() == {"useAlphaAPI"}


def test_each_value_is_used() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    assert values.keys() == SCHEMA["properties"].keys() - {"global"}
    # The one that means something only with enableWindows, which is refused.
    for key in values.keys() - {"nodeSelectorWindows"}:
        assert re.search(rf"Values\.{key}\b|\"{key}\"", templates), key
    for key in ("controller", "nodeCleanupController"):
        for inner in SCHEMA["properties"][key]["properties"]:
            assert re.search(rf"\b(controller|Controller)\.{inner}\b", templates), inner


def test_each_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text("utf-8").splitlines()
    told = [
        line
        for before, line in itertools.pairwise(lines)
        if re.match(r" *(- )?\w+: \S", line) and not before.lstrip().startswith("#")
    ]
    # What is inside of Kubernetes' own objects is explained there.
    own = {"path", "port", "initialDelaySeconds", "periodSeconds", "timeoutSeconds"}
    own |= {"failureThreshold", "maxUnavailable", "type", "grafana_dashboard"}
    assert not [line for line in told if line.split(":")[0].strip() not in own]


def test_ours_are_in_the_documentation() -> None:
    """Upstream's are in upstream's."""
    _, ours = (CHART / "values.yaml").read_text("utf-8").split("# ---- ours ----")
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert not [
        key for key in yaml.safe_load(ours) if not re.search(rf"^\|.*`{key}`", page, re.MULTILINE)
    ]


def test_numbers_reach_the_agent_as_they_were_written() -> None:
    text = render_text({"pools": {"fast": {"hostDir": "/p", "purgeFilesPerSecond": 12345678}}})
    assert "purgeFilesPerSecond: 12345678\n" in text
