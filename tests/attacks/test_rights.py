"""What a stolen token is good for beyond its node: nothing.

Each attack is tried on the API server, with the policies as the chart renders them and a token of
the account in question; beside them what the same account has to do is still allowed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from localvolume.cleaning.jobs import JobSettings, cleaning_job
from localvolume.cleaning.method import Method
from localvolume.cleaning.order import Order
from localvolume.cleaning.paces import JobPaces
from localvolume.config.model import ClassConfig
from localvolume.kube.objects import Meta, PersistentVolume
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import Values, render
from tests.cluster.support_accounts import RBAC, Caller, token
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec
from tests.suite.api import CLAIMS, JOBS, VOLUMES
from tests.suite.names import HOSTNAME, LOCAL_PATH, NODE_LABEL, PROVISIONED_BY
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

Object = dict[str, Any]

NODE = "attacked-b"
POOL = "localvolume.dev/pool"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
FLEX = "localvolume.dev/flexvolume"
OURS = "dynamic.localvolume.dev"
IMAGE = "registry.example/localvolume:attacked"
SHARED = {"matchExpressions": [{"key": "example.com/rack", "operator": "In", "values": ["r1"]}]}
VALUES: Values = {
    "image": IMAGE,
    "useJobForCleaning": True,
    "flexvolume": {"driver": "bindmount"},
    "classes": [
        {"name": "fast", "hostDir": "/mnt/fast/"},
        {"name": "slow", "hostDir": "/mnt/slow"},
        {"name": "lun", "hostDir": "/mnt/lun", "selector": [SHARED]},
    ],
    "pools": {
        "dirs": {"hostDir": "/mnt/pools/dirs", "classes": ["of-dirs"]},
        "group": {"backend": "lvm", "volumeGroup": "nvme"},
        "groups": {"backend": "lvm", "volumeGroupPattern": "disk-[0-9]+"},
    },
    "lvmd": {"device-classes": [{"name": "ssd", "volume-group": "topo"}]},
    "replaces": {
        "localPath": {
            "config": {
                "nodePathMap": [
                    {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/opt/local-path"]}
                ]
            }
        }
    },
    "dynamicStorageClasses": [
        {"name": "made"},
        {"name": "flexed", "provisioner": FLEX},
    ],
    "confinement": {
        "dynamicClasses": ["team-*"],
        "dynamicDirectories": ["/srv/elsewhere"],
        "directories": {"other-*": "/srv/other"},
    },
}


@dataclass(frozen=True)
class Stolen:
    """The tokens of the agent of one node and of the controller."""

    rights: Rights
    objects: Objects
    agent: Caller
    controller: Caller


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane) -> Iterator[Stolen]:
    manifests = render(VALUES, release="attacked", namespace="default", only=TEMPLATES)
    objects = Objects(control_plane)
    # Else the pod that the token is bound to is collected.
    objects.node(NODE)
    try:
        with Rights(control_plane, manifests) as rights:
            controller = Caller(control_plane, token(control_plane, rights.controller))
            yield Stolen(rights, objects, rights.caller(NODE), controller)
    finally:
        objects.clean()


def waiting(objects: Objects, name: str, storage_class: str) -> Object:
    """Somebody's claim that has no volume yet, and a reference to it."""
    claim = objects.make(
        CLAIMS,
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": storage_class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        },
    )
    return reference(name, claim["metadata"]["uid"])


def reference(name: str = "somebodys", uid: str = "00000000-0000-4000-8000-000000000000") -> Object:
    what = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**what, "namespace": "default", "name": name, "uid": uid}


def is_free(objects: Objects, name: str) -> bool:
    found = objects.get(f"{CLAIMS}/{name}")
    return "volumeName" not in found["spec"] and found["status"]["phase"] == "Pending"


# --- the controller's token ----------------------------------------------------------------------


def flexvolume(name: str, claim: Object | None = None, **source: Any) -> Object:
    """What the controller makes for a claim."""
    flex = {"driver": FLEX, "options": {"size": "1048576"}, **source}
    more = {"local": None, "nodeAffinity": None, "flexVolume": flex, "storageClassName": "flexed"}
    return {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: FLEX}},
        "spec": sample_spec("x", **more, claimRef=claim or reference()),
    }


def test_the_controller_may_not_have_a_node_read_a_secret(stolen: Stolen, unique: str) -> None:
    claim = waiting(stolen.objects, unique, "flexed")
    secret = {"name": "registry", "namespace": "kube-system"}
    body = flexvolume(f"{unique}-pv", claim, secretRef=secret)
    said = stolen.controller.refusal("POST", VOLUMES, body, really=True)
    assert "names no Secret" in said
    assert is_free(stolen.objects, unique)
    assert stolen.controller.refusal("POST", VOLUMES, flexvolume(f"{unique}-pv", claim)) == ""


def test_nor_name_the_secret_later(stolen: Stolen, unique: str) -> None:
    """Whoever changes a volume keeps its source: that is Kubernetes' own rule, before ours."""
    made = stolen.objects.make(VOLUMES, flexvolume(f"{unique}-pv"))
    path = f"{VOLUMES}/{made['metadata']['name']}"
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    patch = {"spec": {"flexVolume": {"secretRef": {"name": "registry", "namespace": "default"}}}}
    for caller, body in ((stolen.controller, patch), (stolen.agent, label | patch)):
        assert "is immutable after creation" in caller.refusal("PATCH", path, body, really=True)
    assert "secretRef" not in stolen.objects.get(path)["spec"]["flexVolume"]


def test_without_flexvolume_the_controller_makes_nothing(
    control_plane: ControlPlane, unique: str
) -> None:
    """Its role does not let it, and the policy does not where somebody gave it the right."""
    without = {key: value for key, value in VALUES.items() if key != "flexvolume"}
    manifests = render(without, release=unique, namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as rights:
        caller = Caller(control_plane, token(control_plane, rights.controller))
        body = flexvolume(f"{unique}-pv")
        assert "cannot create resource" in caller.refusal("POST", VOLUMES, body)
        rule = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["create"]}
        name = f"{unique}-more"
        meta = {"metadata": {"name": name}}
        rights.objects.make(f"{RBAC}/clusterroles", {**meta, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        account = {"kind": "ServiceAccount", "name": rights.controller, "namespace": "default"}
        binding = {**meta, "roleRef": role, "subjects": [account]}
        rights.objects.make(f"{RBAC}/clusterrolebindings", binding)
        said = until(
            lambda: caller.refusal("POST", VOLUMES, body),
            lambda answer: "cannot create resource" not in answer,
        )
        assert "FlexVolume is not served here" in said


# --- an agent's token: PersistentVolumes ---------------------------------------------------------


def term(key: str = HOSTNAME, value: str = NODE) -> Object:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


def offer(
    storage_class: str, path: str, *terms: Object, source: str = "local", **more: Any
) -> Object:
    """A volume of the node, prepared: bound to nobody beforehand."""
    affinity = {"required": {"nodeSelectorTerms": list(terms) or [term()]}}
    spec = sample_spec(NODE, local=None, nodeAffinity=affinity, storageClassName=storage_class)
    spec[source] = {"path": path}
    meta = {"name": "attacked-new", "labels": {NODE_LABEL: NODE}}
    return {"metadata": meta, "spec": {**spec, **more}}


def made(
    storage_class: str,
    path: str,
    *terms: Object,
    source: str = "local",
    by: str = OURS,
    pool: str = "dirs/id",
) -> Object:
    """A volume of the node, made for somebody's claim."""
    body = offer(storage_class, path, *terms, source=source, claimRef=reference())
    notes = {PROVISIONED_BY: by, POOL: pool}
    body["metadata"]["annotations"] = {key: value for key, value in notes.items() if value}
    return body


OWN: Mapping[str, Object] = {
    "prepared": offer("fast", "/mnt/fast/one"),
    "of a class by pattern": offer("other-one", "/srv/other/one"),
    "on a shared disk": offer("lun", "/mnt/lun/one", term(), SHARED),
    "in a pool": made("of-dirs", "/mnt/pools/dirs/default/somebodys"),
    "of a class of the chart": made("made", "/mnt/pools/dirs/pvc-1"),
    "of a class by pattern, made": made("team-a", "/srv/elsewhere/pvc-1"),
    "an image": made("made", "/run/localvolume/id/pvc-1"),
    "a logical volume": made("made", "/dev/nvme/pvc-1"),
    "a logical volume of a pattern": made("made", "/dev/disk-7/pvc-1"),
    "a logical volume of TopoLVM's": made("made", "/dev/topo/pvc-1"),
    "local-path's": made("made", "/opt/local-path/pvc-1", source="hostPath", by=LOCAL_PATH),
    "local-path's, local": made("made", "/opt/local-path/pvc-1", by=LOCAL_PATH),
    "local-path's elsewhere": made("made", "/srv/elsewhere/pvc-1", source="hostPath"),
}
"""What an agent with these values has to offer."""

OFFER = "may offer no volume"
LABEL = "may offer only volumes with the label"
CLASS = "may make no volume for a claim of the class"
PLACE = "may make no volume for a claim at"
SAYS = "says which pool it is in"
CLEAN = "has no part that is empty"

FALSE: Mapping[str, tuple[Object, str]] = {
    # Prepared volumes.
    "the root directory": (offer("fast", "/", source="hostPath"), CLEAN),
    "a directory as hostPath": (offer("fast", "/mnt/fast/one", source="hostPath"), OFFER),
    "an unknown class": (offer("somebodys", "/mnt/fast/one"), OFFER),
    "a class that is like a known one": (offer("faster", "/mnt/fast/one"), OFFER),
    "a class that ends like a known one": (offer("breakfast", "/mnt/fast/one"), OFFER),
    "a class without a name": (offer("", "/mnt/fast/one"), OFFER),
    "a class that is made for claims": (offer("made", "/mnt/pools/dirs/one"), OFFER),
    "another class's directory": (offer("fast", "/mnt/slow/one"), OFFER),
    "a directory beside": (offer("fast", "/mnt/fast-other/one"), OFFER),
    "the discovery directory": (offer("fast", "/mnt/fast"), OFFER),
    "the discovery directory by a dot": (offer("fast", "/mnt/fast/."), CLEAN),
    "the discovery directory by a slash": (offer("fast", "/mnt/fast/"), CLEAN),
    "a path with a double slash": (offer("fast", "/mnt/fast//one"), CLEAN),
    # Kubernetes' own rule.
    "a directory above": (offer("fast", "/mnt/fast/../../etc"), "must not contain '..'"),
    "a prepared volume for a claim": (
        offer("fast", "/mnt/fast/one", claimRef=reference()),
        CLASS,
    ),
    # Volumes made for claims.
    "for a claim of another driver": (made("ebs", "/mnt/pools/dirs/pvc-1"), CLASS),
    "for a claim without a class": (made("", "/mnt/pools/dirs/pvc-1"), CLASS),
    "for a class like a known one": (made("of-dirsx", "/mnt/pools/dirs/pvc-1"), CLASS),
    "for a class that ends like a known one": (made("remade", "/mnt/pools/dirs/pvc-1"), CLASS),
    "for a class of FlexVolume": (made("flexed", "/mnt/pools/dirs/pvc-1"), CLASS),
    "at the root directory": (made("made", "/", source="hostPath"), CLEAN),
    "at somebody's directory": (made("made", "/etc/kubernetes"), PLACE),
    "at somebody's directory as hostPath": (
        made("made", "/etc/kubernetes", source="hostPath"),
        PLACE,
    ),
    "in a pool, as hostPath": (
        made("made", "/mnt/pools/dirs/pvc-1", source="hostPath"),
        PLACE,
    ),
    "at the whole pool": (made("made", "/mnt/pools/dirs"), PLACE),
    "at the whole pool by a dot": (made("made", "/mnt/pools/dirs/."), CLEAN),
    "beside the pool": (made("made", "/mnt/pools/dirs-other/pvc-1"), PLACE),
    "a prepared volume's directory": (made("made", "/mnt/fast/one"), PLACE),
    "a whole disk": (made("made", "/dev/sda"), PLACE),
    "another volume group": (made("made", "/dev/root/pvc-1"), PLACE),
    "a volume group like a pattern's": (made("made", "/dev/disk-7x/pvc-1"), PLACE),
    "where a pattern's volume group is no device": (made("made", "/mnt/dev/disk-7/pvc-1"), PLACE),
    "below a pattern's logical volume": (made("made", "/dev/disk-7/pvc-1/x"), PLACE),
    "said to be another driver's": (
        made("made", "/mnt/pools/dirs/pvc-1", by="ebs.csi.aws.com"),
        SAYS,
    ),
    "said to be the controller's": (made("made", "/mnt/pools/dirs/pvc-1", by=FLEX), SAYS),
    "said to be nobody's": (made("made", "/mnt/pools/dirs/pvc-1", by=""), SAYS),
    "said to be in no pool": (made("made", "/mnt/pools/dirs/pvc-1", pool=""), SAYS),
    # On other nodes too.
    "anywhere on the shared nodes, as hostPath": (
        offer("lun", "/", term(), SHARED, source="hostPath"),
        LABEL,
    ),
    "a shared class's directory as hostPath": (
        offer("lun", "/mnt/lun/one", term(), SHARED, source="hostPath"),
        LABEL,
    ),
    "another directory on the shared nodes": (offer("lun", "/etc/x", term(), SHARED), LABEL),
    "another class on the shared nodes": (offer("fast", "/mnt/fast/one", term(), SHARED), LABEL),
    "for a claim on the shared nodes": (
        made("made", "/mnt/pools/dirs/pvc-1", term(), SHARED),
        LABEL,
    ),
}


@pytest.mark.parametrize("what", OWN)
def test_an_agent_offers_what_is_its_nodes(stolen: Stolen, what: str) -> None:
    assert stolen.agent.refusal("POST", VOLUMES, OWN[what]) == ""


@pytest.mark.parametrize("what", FALSE)
def test_an_agent_offers_nothing_else(stolen: Stolen, what: str) -> None:
    body, said = FALSE[what]
    assert said in stolen.agent.refusal("POST", VOLUMES, body)


def test_a_claim_of_another_driver_is_not_caught(stolen: Stolen, unique: str) -> None:
    claim = waiting(stolen.objects, unique, unique)
    for number, body in enumerate(
        (
            made(unique, "/", source="hostPath"),
            made(unique, "/mnt/pools/dirs/pvc-1"),
            offer(unique, "/mnt/fast/one"),
            called(unique, made("made", "/mnt/pools/dirs/pvc-1")),
            called(unique, offer("fast", "/mnt/fast/one")),
        )
    ):
        body["metadata"]["name"] = f"{unique}-{number}"
        if "claimRef" in body["spec"]:
            body["spec"]["claimRef"] = claim
        assert "denied request" in stolen.agent.refusal("POST", VOLUMES, body, really=True)
    assert is_free(stolen.objects, unique)


def called(storage_class: str, body: Object) -> Object:
    """The same, by an annotation of another class, which counts before the field."""
    body["metadata"].setdefault("annotations", {})[CLASS_ANNOTATION] = storage_class
    return body


def test_a_volume_gets_no_other_class_later(stolen: Stolen, unique: str) -> None:
    body = offer("fast", "/mnt/fast/one")
    body["metadata"]["name"] = unique
    stolen.objects.make(VOLUMES, body)
    path = f"{VOLUMES}/{unique}"
    said = stolen.agent.refusal("PATCH", path, {"metadata": called("another", body)["metadata"]})
    assert "gives a volume no class by the annotation" in said
    note = {"metadata": {"annotations": {"localvolume.dev/claimed": "x"}}}
    assert stolen.agent.refusal("PATCH", path, note) == ""


TAKEN: Mapping[str, Object] = {
    "as hostPath": offer("lun", "/", term(), SHARED, source="hostPath"),
    "of another class": offer("fast", "/mnt/fast/one", term(), SHARED),
    "elsewhere": offer("lun", "/etc/x", term(), SHARED),
}
"""Volumes on shared nodes that somebody made without a label."""


@pytest.mark.parametrize("what", TAKEN)
def test_what_reaches_other_nodes_is_not_taken(stolen: Stolen, what: str, unique: str) -> None:
    body = copy.deepcopy(TAKEN[what])
    body["metadata"] = {"name": unique}
    stolen.objects.make(VOLUMES, body)
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    assert "may adopt only a volume" in stolen.agent.refusal("PATCH", f"{VOLUMES}/{unique}", label)


def test_a_shared_volume_of_its_class_is_taken(stolen: Stolen, unique: str) -> None:
    body = offer("lun", "/mnt/lun/one", term(), SHARED)
    body["metadata"] = {"name": unique}
    stolen.objects.make(VOLUMES, body)
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    assert stolen.agent.refusal("PATCH", f"{VOLUMES}/{unique}", label) == ""


@pytest.mark.parametrize(
    "patch",
    [
        {"local": {"path": "/etc/x"}},
        {"local": None, "hostPath": {"path": "/"}},
        {"local": None, "flexVolume": {"driver": FLEX, "secretRef": {"name": "x"}}},
    ],
    ids=["path", "kind", "FlexVolume"],
)
def test_a_volume_stays_where_it_is(stolen: Stolen, patch: Object, unique: str) -> None:
    """Kubernetes' own rule, which ours relies on."""
    body = offer("fast", "/mnt/fast/one")
    body["metadata"]["name"] = unique
    stolen.objects.make(VOLUMES, body)
    said = stolen.agent.refusal("PATCH", f"{VOLUMES}/{unique}", {"spec": patch})
    assert "is immutable after creation" in said


# --- an agent's token: Jobs ----------------------------------------------------------------------


def job(*path: str | int, value: Any = None) -> Object:
    """What the agent makes, with all that the configuration may add; changed at one place."""
    order = Order(
        kind="block",
        mode="Block",
        path="/mnt/fast/one",
        device="8:1",
        size_bytes=1 << 20,
        identity={"kind": "block", "serial": "S"},
        command=("/scripts/shred.sh", "2"),
    )
    made = cleaning_job(
        order,
        Method("command", passes=2),
        PersistentVolume(metadata=Meta(name="local-pv-1", uid="7a3c6b5e")),
        ClassConfig(name="fast", host_dir="/mnt/fast", mount_dir="/mnt/fast"),
        NodeFacts(NODE, "uid", NODE),
        JobSettings("default", IMAGE, tolerations=[{"operator": "Exists"}], sees_udev=True),
        datetime(2026, 11, 25, tzinfo=UTC),
        JobPaces(),
    )
    # Nothing is to run.
    made["spec"]["suspend"] = True
    changed: Any = made
    for key in path[:-1]:
        changed = changed.setdefault(key, {}) if isinstance(key, str) else changed[key]
    if path:
        changed[path[-1]] = value
    return made


SPEC = ("spec",)
TEMPLATE = (*SPEC, "template")
POD = (*TEMPLATE, "spec")
CONTAINER = (*POD, "containers", 0)
ANOTHER = {"name": "another", "image": IMAGE}

GIVES = "may give a cleaning Job no"
ONCE = "runs one container, once"
RUNS = "a cleaning Job runs localvolume clean"
DEFAULTS = "leaves to the API server's defaults"
READS = "a cleaning Job reads directories and devices of its node"
ACCESS = "has no access to the API server"

MORE: Sequence[tuple[tuple[str | int, ...], Any, str]] = [
    # Of the pod.
    ((*POD, "imagePullSecrets"), [{"name": "registry"}], f"{GIVES} imagePullSecrets"),
    ((*POD, "hostNetwork"), True, f"{GIVES} hostNetwork"),
    ((*POD, "hostPID"), True, f"{GIVES} hostPID"),
    ((*POD, "hostIPC"), True, f"{GIVES} hostIPC"),
    ((*POD, "hostname"), "another", f"{GIVES} hostname"),
    ((*POD, "hostAliases"), [{"ip": "10.0.0.1", "hostnames": ["x"]}], f"{GIVES} hostAliases"),
    ((*POD, "dnsConfig"), {"nameservers": ["10.0.0.1"]}, f"{GIVES} dnsConfig"),
    ((*POD, "priorityClassName"), "system-node-critical", f"{GIVES} priorityClassName"),
    ((*POD, "runtimeClassName"), "another", f"{GIVES} runtimeClassName"),
    ((*POD, "shareProcessNamespace"), True, f"{GIVES} shareProcessNamespace"),
    ((*POD, "affinity"), {"nodeAffinity": {}}, f"{GIVES} affinity"),
    ((*POD, "activeDeadlineSeconds"), 9, f"{GIVES} activeDeadlineSeconds"),
    ((*POD, "securityContext"), {"runAsUser": 7}, f"{GIVES} runAsUser"),
    ((*POD, "serviceAccountName"), "default", f"{GIVES} serviceAccount"),
    ((*POD, "serviceAccountName"), "attacked-local-volume-provisioner-controller", ACCESS),
    ((*POD, "automountServiceAccountToken"), True, ACCESS),
    ((*POD, "ephemeralContainers"), [ANOTHER], "ephemeral containers not allowed"),
    ((*POD, "initContainers"), [ANOTHER], READS),
    ((*POD, "volumes", 0), {"name": "x", "emptyDir": {}}, READS),
    ((*POD, "volumes", 0), {"name": "x", "secret": {"secretName": "x"}}, READS),
    ((*POD, "volumes", 0), {"name": "x", "projected": {"sources": []}}, READS),
    ((*POD, "restartPolicy"), "OnFailure", DEFAULTS),
    ((*POD, "dnsPolicy"), "Default", DEFAULTS),
    ((*POD, "schedulerName"), "another", DEFAULTS),
    ((*POD, "terminationGracePeriodSeconds"), 9999, DEFAULTS),
    # Of its metadata.
    ((*TEMPLATE, "metadata", "annotations"), {"x": "y"}, f"{GIVES} annotations"),
    ((*TEMPLATE, "metadata", "finalizers"), ["example.com/x"], f"{GIVES} finalizers"),
    ((*TEMPLATE, "metadata", "labels", "app"), "another", f"{GIVES} app"),
    # Of its container.
    ((*POD, "containers", 1), ANOTHER, ONCE),
    ((*CONTAINER, "image"), "registry.example/private:v1", RUNS),
    ((*CONTAINER, "command"), ["/bin/sh"], RUNS),
    ((*CONTAINER, "command"), None, RUNS),
    ((*CONTAINER, "imagePullPolicy"), "Never", DEFAULTS),
    ((*CONTAINER, "envFrom"), [{"secretRef": {"name": "x"}}], READS),
    (
        (*CONTAINER, "lifecycle"),
        {"preStop": {"sleep": {"seconds": 1}}},
        f"{GIVES} lifecycle",
    ),
    ((*CONTAINER, "ports"), [{"containerPort": 80, "hostPort": 80}], f"{GIVES} ports"),
    ((*CONTAINER, "stdin"), True, f"{GIVES} stdin"),
    ((*CONTAINER, "workingDir"), "/x", f"{GIVES} workingDir"),
    ((*CONTAINER, "securityContext", "procMount"), "Default", f"{GIVES} procMount"),
    # Of the Job.
    ((*SPEC, "parallelism"), 100000, ONCE),
    ((*SPEC, "parallelism"), 0, ONCE),
    ((*SPEC, "completions"), 100000, ONCE),
    ((*SPEC, "backoffLimit"), 100000, ONCE),
    ((*SPEC, "completionMode"), "Indexed", ONCE),
    ((*SPEC, "managedBy"), "example.com/another", f"{GIVES} managedBy"),
    (
        (*SPEC, "podFailurePolicy"),
        {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]},
        f"{GIVES} podFailurePolicy",
    ),
]


def test_the_agents_own_job(stolen: Stolen) -> None:
    assert stolen.agent.refusal("POST", JOBS, job()) == ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    MORE,
    ids=[f"{'.'.join(map(str, path[1:]))}={value}"[:70] for path, value, _ in MORE],
)
def test_a_job_is_what_the_agent_makes(
    stolen: Stolen, path: tuple[str | int, ...], value: Any, said: str
) -> None:
    body = job()
    if path == (*POD, "containers", 1):
        body["spec"]["template"]["spec"]["containers"].append(value)
    else:
        body = job(*path, value=value)
    if path[-1] == "volumes" or "volumes" in path:
        body["spec"]["template"]["spec"]["containers"][0].pop("volumeMounts")
    assert said in stolen.agent.refusal("POST", JOBS, body)


def test_a_job_takes_no_pods_of_others(stolen: Stolen) -> None:
    """A selector of its own would have it count, and end, whatever pods match."""
    body = job(*SPEC, "manualSelector", value=True)
    body["spec"]["selector"] = {"matchLabels": {NODE_LABEL: NODE}}
    assert ONCE in stolen.agent.refusal("POST", JOBS, body)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"parallelism": 100000}},
        {"spec": {"suspend": False}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"spec": {"ttlSecondsAfterFinished": 1}},
        {"spec": {"template": {"spec": {"nodeSelector": {HOSTNAME: "another"}}}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
        {"metadata": {"ownerReferences": None}},
    ],
    ids=lambda patch: str(patch)[:60],
)
def test_a_job_stays_as_it_was_made(stolen: Stolen, patch: Object, unique: str) -> None:
    body = job()
    body["metadata"] |= {"name": unique, "ownerReferences": [owner(stolen)]}
    stolen.objects.make(JOBS, body)
    said = stolen.agent.refusal("PATCH", f"{JOBS}/{unique}", patch)
    assert "an agent changes only labels and annotations of a Job" in said
    label = {"metadata": {"labels": {"example.com/x": "y"}}}
    assert stolen.agent.refusal("PATCH", f"{JOBS}/{unique}", label) == ""


def owner(stolen: Stolen) -> Object:
    """Something that is there, for a collector of garbage."""
    found = stolen.objects.get("/api/v1/namespaces/default")["metadata"]
    return {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": found["uid"]}


def test_the_api_server_finds_no_mistake_in_the_policies(stolen: Stolen) -> None:
    stolen.rights.check_types()
