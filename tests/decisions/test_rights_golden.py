"""The rights that are given, word for word, and what none of them may ever be."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.marks import node_key
from tests.chart.support_helm import Values, render
from tests.chart.support_manifests import NAME, Object, installed

#: Rendered by helm, which is built.
of_the_chart = pytest.mark.needs("go")

CONTROLLER = f"{NAME}-controller"
VIEWER = f"{NAME}-viewer"
READ = ("get", "list", "watch")
SNAPSHOTS = "snapshot.storage.k8s.io"
GROUPS = "groupsnapshot.storage.k8s.io"

Given = tuple[str, str, str, tuple[str, ...], tuple[str, ...]]
"""Role, API group, resource, names (none: all), verbs."""

INSTALLED: list[Given] = [
    (NAME, "", "events", (), ("create", "patch")),
    (NAME, "", "nodes", (), ("list", "watch")),
    (NAME, "", "persistentvolumeclaims", (), (*READ, "patch")),
    (NAME, "", "persistentvolumeclaims/status", (), ("patch",)),
    (NAME, "", "persistentvolumes", (), (*READ, "create", "patch", "delete")),
    (NAME, "storage.k8s.io", "storageclasses", (), ("list", "watch")),
    (CONTROLLER, "", "events", (), ("create", "patch")),
    (CONTROLLER, "", "nodes", (), READ),
    (CONTROLLER, "", "persistentvolumeclaims", (), (*READ, "patch")),
    (CONTROLLER, "", "persistentvolumes", (), (*READ, "patch", "delete")),
    (CONTROLLER, "storage.k8s.io", "csidrivers", (), ("create",)),
    (
        CONTROLLER,
        "storage.k8s.io",
        "csidrivers",
        ("dynamic.localvolume.dev", "csi.localvolume.dev"),
        ("get",),
    ),
    (CONTROLLER, "storage.k8s.io", "csistoragecapacities", (), ("list", "watch")),
    (CONTROLLER, "storage.k8s.io", "storageclasses", (), ("list", "watch")),
    (
        f"{NAME} (namespace)",
        "storage.k8s.io",
        "csistoragecapacities",
        (),
        (*READ, "create", "patch", "delete"),
    ),
    (f"{NAME} (namespace)", "batch", "jobs", (), (*READ, "patch", "delete")),
    (f"{NAME} (namespace)", "", "pods", (), ("list",)),
    (f"{CONTROLLER} (namespace)", "coordination.k8s.io", "leases", (), ("create",)),
    (
        f"{CONTROLLER} (namespace)",
        "coordination.k8s.io",
        "leases",
        ("localvolume-controller",),
        (*READ, "patch"),
    ),
    (VIEWER, "", "events", (), ("list",)),
    (VIEWER, "", "nodes", (), ("list",)),
    (VIEWER, "", "persistentvolumeclaims", (), ("list",)),
    (VIEWER, "", "persistentvolumes", (), ("list",)),
    (VIEWER, "", "pods", (), ("get", "list")),
    (VIEWER, "apps", "daemonsets", (), ("list",)),
    (VIEWER, "batch", "jobs", (), ("list",)),
    (VIEWER, "coordination.k8s.io", "leases", ("localvolume-controller",), ("list",)),
    (VIEWER, GROUPS, "volumegroupsnapshotcontents", (), ("list",)),
    (VIEWER, SNAPSHOTS, "volumesnapshotcontents", (), ("list",)),
    (
        VIEWER,
        "storage.k8s.io",
        "csidrivers",
        ("dynamic.localvolume.dev", "csi.localvolume.dev"),
        ("get",),
    ),
    (VIEWER, "storage.k8s.io", "csinodes", (), ("list",)),
    (VIEWER, "storage.k8s.io", "csistoragecapacities", (), ("list",)),
    (VIEWER, "storage.k8s.io", "storageclasses", (), ("list",)),
    (VIEWER, "storage.k8s.io", "volumeattributesclasses", (), ("list",)),
]

SECURED: Values = {"metrics": {"secure": True, "secretName": "ours"}}

OF_CSI: set[Given] = {
    (NAME, SNAPSHOTS, "volumesnapshotcontents", (), (*READ, "patch")),
    (NAME, SNAPSHOTS, "volumesnapshotcontents/status", (), ("patch",)),
    (NAME, SNAPSHOTS, "volumesnapshots", (), ("get",)),
    (NAME, SNAPSHOTS, "volumesnapshotclasses", (), ("get",)),
    (NAME, GROUPS, "volumegroupsnapshotcontents", (), (*READ, "patch")),
    (NAME, GROUPS, "volumegroupsnapshotcontents/status", (), ("patch",)),
    (NAME, GROUPS, "volumegroupsnapshotclasses", (), ("get",)),
    (NAME, "storage.k8s.io", "volumeattributesclasses", (), ("get",)),
    (CONTROLLER, SNAPSHOTS, "volumesnapshots", (), ("list", "watch")),
    (CONTROLLER, SNAPSHOTS, "volumesnapshotcontents", (), ("list", "watch")),
}

MORE: list[tuple[str, Values, set[Given]]] = [
    (
        "Jobs",
        {"useJobForCleaning": True},
        {
            (
                f"{NAME} (namespace)",
                "batch",
                "jobs",
                (),
                (*READ, "create", "patch", "delete"),
            ),
        },
    ),
    ("taint", {"removeNodeNotReadyTaint": True}, {(NAME, "", "nodes", (), (*READ, "patch"))}),
    (
        "FlexVolume",
        {"flexvolume": {"driver": "bindmount"}},
        {
            (NAME, "", "pods", (), ("get",)),
            (NAME, "", "nodes", (), READ),
            (CONTROLLER, "", "persistentvolumes", (), (*READ, "create", "patch", "delete")),
        },
    ),
    (
        "pods' own volumes",
        {
            "csi": {"enabled": True},
            "pools": {
                "fast": {"hostDir": "/mnt/fast", "inline": {"largest": "1Gi", "total": "9Gi"}}
            },
        },
        {
            (NAME, "", "pods", (), ("get",)),
            *OF_CSI,
        },
    ),
    (
        "elastic's FlexVolume",
        {"replaces": {"elastic": {"driver": "BINDMOUNT"}}},
        {
            (NAME, "", "pods", (), ("get",)),
            (NAME, "", "nodes", (), READ),
            (CONTROLLER, "", "persistentvolumes", (), (*READ, "create", "patch", "delete")),
        },
    ),
    (
        "CSI",
        {"csi": {"enabled": True}},
        OF_CSI,
    ),
    (
        "lost nodes",
        {"controller": {"storageClassNames": ["fast-disks"]}},
        {(CONTROLLER, "", "persistentvolumeclaims", (), (*READ, "patch", "delete"))},
    ),
    (
        "secured metrics",
        SECURED,
        {
            (role, group, resource, (), ("create",))
            for role in (NAME, CONTROLLER)
            for group, resource in (
                ("authentication.k8s.io", "tokenreviews"),
                ("authorization.k8s.io", "subjectaccessreviews"),
            )
        },
    ),
    (
        "no confinement",
        {"confinement": {"enabled": False}},
        {(NAME, "", "persistentvolumes", (), (*READ, "create", "patch"))},
    ),
]
"""What a value adds, or puts in place of what is given without it."""

EVERYTHING: Values = {
    "useJobForCleaning": True,
    "removeNodeNotReadyTaint": True,
    "flexvolume": {"driver": "bindmount"},
    "csi": {"enabled": True},
    "controller": {"storageClassNames": ["fast-disks"]},
    **SECURED,
}
TEMPLATES = ("rbac-agent.yaml", "rbac-controller.yaml", "rbac-viewer.yaml")


def given(manifests: Sequence[Object]) -> Iterator[Given]:
    """Each resource of each rule of each role."""
    for one in manifests:
        if one["kind"] in ("ClusterRole", "Role"):
            where = "" if one["kind"] == "ClusterRole" else " (namespace)"
            for rule in one["rules"]:
                names = tuple(rule.get("resourceNames", []))
                for group in rule.get("apiGroups", []):
                    for resource in rule["resources"]:
                        role = one["metadata"]["name"] + where
                        yield role, group, resource, names, tuple(rule["verbs"])


def test_the_rights_of_the_manifests() -> None:
    assert sorted(given(installed())) == sorted(INSTALLED)


@of_the_chart
@pytest.mark.parametrize(("values", "more"), [row[1:] for row in MORE], ids=[r[0] for r in MORE])
def test_what_a_value_adds(values: Values, more: set[Given]) -> None:
    replaced = {one[:4] for one in more}
    expected = {one for one in INSTALLED if one[:4] not in replaced} | more
    assert set(given(render(values, only=TEMPLATES))) == expected


def _rows(*values: Values) -> Iterator[Given]:
    yield from given(installed())
    for one in values:
        yield from given(render(one, only=TEMPLATES))


@of_the_chart
def test_what_nobody_is_given() -> None:
    """Neither all of anything, nor Secrets, nor what makes more rights out of rights."""
    for role, group, resource, names, verbs in _rows(EVERYTHING, {}):
        row: Any = (role, group, resource, names, verbs)
        assert "*" not in (group, resource, *names, *verbs), row
        assert not any("*" in one for one in (group, resource, *names, *verbs)), row
        assert resource.partition("/")[0] not in {"secrets", "serviceaccounts", "configmaps"}, row
        assert group not in {"rbac.authorization.k8s.io", "admissionregistration.k8s.io"}, row
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(verbs), row
        assert resource != "nodes/status", row
        if resource.startswith("pods"):
            assert set(verbs) <= {"get", "list"}, row
        if resource == "nodes" and "patch" in verbs:
            assert role == NAME, row


@of_the_chart
def test_who_reads_metrics_may_do_nothing_else() -> None:
    values = {**SECURED, "controller": {"metricsPath": "/of-the-controller"}}
    rules = {
        one["metadata"]["name"]: one["rules"]
        for one in render(values, only=TEMPLATES)
        if one["kind"] == "ClusterRole"
    }
    paths = ["/metrics", "/of-the-controller"]
    assert rules[f"{NAME}-metrics-reader"] == [{"nonResourceURLs": paths, "verbs": ["get"]}]
    assert all("metrics-reader" not in one["metadata"]["name"] for one in installed())


def test_who_sees_may_write_nothing_and_is_nobody_until_bound() -> None:
    """Neither `view` nor anybody else has it by itself."""
    verbs = {verb for role, *_, verbs in given(installed()) if role == VIEWER for verb in verbs}
    assert verbs == {"get", "list"}
    bound = [one["roleRef"]["name"] for one in installed() if one["kind"].endswith("RoleBinding")]
    assert bound
    assert VIEWER not in bound
    for one in installed():
        assert "aggregate-to" not in str(one["metadata"].get("labels")), one["metadata"]["name"]


@of_the_chart
def test_no_node_is_written_unless_its_taint_is_to_go() -> None:
    for one in _rows({key: value for key, value in EVERYTHING.items() if "Taint" not in key}):
        assert one[2] != "nodes" or set(one[4]) <= set(READ), one


@of_the_chart
def test_nothing_is_deleted_everywhere_by_an_agent_that_is_not_confined() -> None:
    values = {**EVERYTHING, "confinement": {"enabled": False}}
    for role, _, resource, _, verbs in given(render(values, only=TEMPLATES)):
        assert role != NAME or "delete" not in verbs, resource
    policies = [one for one in render(values) if "AdmissionPolicy" in one["kind"]]
    assert policies == []


@of_the_chart
def test_each_policy_is_bound_and_denies() -> None:
    """An error in one, and what it does not know, is refused; only our own accounts are asked."""
    manifests = render(EVERYTHING)
    accounts = {NAME, CONTROLLER}
    bound = {
        one["spec"]["policyName"]: one["spec"]["validationActions"]
        for one in manifests
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    policies = [one for one in manifests if one["kind"] == "ValidatingAdmissionPolicy"]
    assert sorted(bound) == sorted(one["metadata"]["name"] for one in policies)
    assert all(actions == ["Deny"] for actions in bound.values())
    confined = set()
    for one in policies:
        spec = one["spec"]
        assert spec["failurePolicy"] == "Fail"
        (condition,) = spec["matchConditions"]
        who = condition["expression"].removeprefix("request.userInfo.username == ").strip('"')
        assert who.removeprefix(f"system:serviceaccount:{NAME}:") in accounts
        for rule in spec["matchConstraints"]["resourceRules"]:
            confined |= {(who.rpartition(":")[2], name) for name in rule["resources"]}
    written = {
        (role.removesuffix(" (namespace)"), resource)
        for role, _, resource, _, verbs in _rows(EVERYTHING)
        if set(verbs) - set(READ)
    }
    # Of the controller's own: its lease by its name, its driver, and what it says.
    free = {(CONTROLLER, one) for one in ("leases", "csidrivers", "events")}
    # Questions, of which nothing is kept.
    reviews = ("tokenreviews", "subjectaccessreviews")
    free |= {(role, one) for role in (NAME, CONTROLLER) for one in reviews}
    assert written - free <= confined


def test_the_key_of_a_long_name_as_the_documentation_makes_it() -> None:
    """For `confinement.nodeKeys`, by the lines of docs/rights.md."""
    page = (Path(__file__).parents[2] / "docs" / "rights.md").read_text()
    (script,) = re.findall(r"```sh\n(name=.*?)```", page, re.DOTALL)
    (name,) = re.findall(r"^name=(.*)$", script, re.MULTILINE)
    for one in (name, f"{'x' * 39}.{name}", f"{'x' * 36}----{name}"):
        asked = script.replace(f"name={name}", f"name={one}")
        done = subprocess.run(
            ["sh", "-c", asked], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout == f"{node_key(one)}\n"
