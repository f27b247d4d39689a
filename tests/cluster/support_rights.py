"""The rights that the manifests give, loaded into the control plane, and tokens bound to nodes.

Whoever acts with them has the roles and the policies exactly as they are rendered; only the
namespace is the tests' own. `of_labs` are the values that name the labs' classes and directories.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from prometheus_client.parser import text_string_to_metric_families

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import Values
from tests.chart.support_manifests import NAME, Object
from tests.cluster.support_accounts import (
    ACCOUNTS,
    RBAC,
    Caller,
    kubeconfig,
    roles_in_force,
    token,
)
from tests.cluster.support_agent import ADMISSION, Lab
from tests.cluster.support_objects import Objects
from tests.suite.api import EVENTS, PODS, VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL
from tests.suite.until import until

TEMPLATES = (
    "serviceaccounts.yaml",
    "rbac-agent.yaml",
    "rbac-controller.yaml",
    "confinement.yaml",
)

Flow = Callable[..., None]

COLLECTIONS = {
    "ServiceAccount": ACCOUNTS,
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/default/roles",
    "RoleBinding": f"{RBAC}/namespaces/default/rolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}


def in_default(thing: Any) -> Any:
    """The same in the namespace `default`, where the tests' Jobs and capacities are."""
    if isinstance(thing, dict):
        moved = {key: in_default(value) for key, value in thing.items()}
        return {**moved, "namespace": "default"} if "namespace" in moved else moved
    if isinstance(thing, list):
        return [in_default(one) for one in thing]
    if isinstance(thing, str):
        return thing.replace(f"system:serviceaccount:{NAME}:", "system:serviceaccount:default:")
    return thing


JOB_IMAGE = "registry.example/localvolume:test"
"""Of the labs' Jobs, as of the pods that make them."""


def of_labs(directory: Path, values: Values | None = None) -> Values:
    """The values, and with them what a lab's configuration has that the chart does not write:
    classes and pools by the names that the lab gives them, everything below that directory."""
    given = dict(values or {})
    known = {
        # As the labs' hosts and tests' own objects call them.
        "directories": {"t*": "/host", "none": "/"},
        "dynamicClasses": ["t*"],
        "dynamicDirectories": [str(directory)],
    }
    return {"image": JOB_IMAGE, **given, "confinement": {**known, **given.get("confinement", {})}}


def _is_asked_for(manifest: Object) -> bool:
    """Whether it is a policy of the agent's that is in force once an attempt is refused."""
    name: str = manifest["metadata"]["name"]
    others = ("-snapshots", "-groups", "-versions")
    return "-controller" not in str(manifest) and not name.endswith(others)


class Rights:
    """Accounts, roles and policies out of manifests; a context manager that takes them away."""

    def __init__(self, plane: ControlPlane, manifests: Sequence[Object]) -> None:
        self.plane = plane
        self.objects = Objects(plane)
        self.manifests = [one for one in in_default(manifests) if one["kind"] in COLLECTIONS]
        accounts = [
            one["metadata"]["name"] for one in self.manifests if one["kind"] == "ServiceAccount"
        ]
        self.controller = next((one for one in accounts if one.endswith("-controller")), "")
        (self.agent,) = set(accounts) - {self.controller}
        self._pods = 0

    def __enter__(self) -> Self:
        # What is asked for last: with that in force, so are the others.
        for one in sorted(self.manifests, key=_is_asked_for):
            self.objects.make(COLLECTIONS[one["kind"]], one)
        roles_in_force(self.plane, self.manifests)
        if any(one["kind"] == "ValidatingAdmissionPolicy" for one in self.manifests):
            self._until_in_force()
        return self

    def __exit__(self, *_: object) -> None:
        self.objects.clean()

    def _until_in_force(self) -> None:
        nobody = self.caller()
        about = {"kind": "PersistentVolume", "name": "none"}
        samples: dict[str, Object] = {
            VOLUMES: {"metadata": {"name": "none"}, "spec": sample_spec("nowhere")},
            EVENTS: {"metadata": {"name": "none"}, "involvedObject": about, "reason": "None"},
        }

        def wait_for(path: str, body: dict[str, Any]) -> None:
            until(
                lambda: nobody.refusal("POST", path, body),
                lambda refusal: "names no node" in refusal,
                said=lambda: f"{path} is not confined",
            )

        for path, body in samples.items():
            wait_for(path, body)

    def pod_on(self, node: str, account: str = "") -> Object:
        """The agent's pod on that node, which nothing runs."""
        self._pods += 1
        account = account or self.agent
        body = {
            # Others with other rights may act on the same node.
            "metadata": {"name": f"{node[:180]}-{account}-{self._pods}"},
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "containers": [{"name": "agent", "image": "none"}],
            },
        }
        return self.objects.make(PODS, body)

    def bearer(self, node: str = "") -> str:
        """A token of the agent's account: of its pod on that node, or of no pod."""
        return token(self.plane, self.agent, self.pod_on(node) if node else None)

    def caller(self, node: str = "") -> Caller:
        """Who holds such a token."""
        return Caller(self.plane, self.bearer(node))

    def confine(self, lab: Lab) -> None:
        """Have the lab's agents act as the one of its node."""
        lab.kubeconfig = kubeconfig(self.plane, self.bearer(lab.node), lab.directory)

    def policies(self) -> list[Object]:
        """The policies as they are in the control plane."""
        kind = "ValidatingAdmissionPolicy"
        return [
            self.objects.get(f"{COLLECTIONS[kind]}/{one['metadata']['name']}")
            for one in self.manifests
            if one["kind"] == kind
        ]

    def check_types(self) -> None:
        """The API server has checked each expression against each kind that it is asked about,
        and warns of none."""

        def checked(policies: list[Object]) -> bool:
            return all("observedGeneration" in one.get("status", {}) for one in policies)

        policies = until(self.policies, checked)
        assert policies
        for one in policies:
            assert one["status"]["typeChecking"].get("expressionWarnings", []) == []


def sample_spec(*hostnames: str, **spec: Any) -> Object:
    """The spec of a small PersistentVolume on these nodes."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hostnames)}
    return {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        **spec,
    }


def false_job(node: str, name: str, uid: str, image: str = JOB_IMAGE) -> Object:
    """What the policies let an agent make, of any name and for any UID."""
    labels = {NODE_LABEL: node, "pvuuid": uid}
    container = {
        "name": "cleaner",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["localvolume", "clean"],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {HOSTNAME: node},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "parallelism": 1,
            "completions": 1,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def refusals(lab: Lab) -> list[str]:
    """What the API server has refused the lab's agents."""
    words = ("is forbidden", "denied request", "(403")
    found = [line for line in lab.log() if any(word in line for word in words)]
    status, text = lab.http("/metrics") if lab.agent is not None else (0, "")
    for family in text_string_to_metric_families(text if status == 200 else ""):
        for sample in family.samples:
            labels = sample.labels
            if (
                sample.name == "localvolume_api_requests_total"
                and labels["outcome"] == "TellTheAdministrator"
            ):
                found.append(f"{labels['verb']} {labels['resource']}: {sample.value:.0f}")
    return found


def done_with(rights: Rights, flow: Flow, request: pytest.FixtureRequest) -> None:
    """Run another test with its agents confined; they are refused nothing.

    `lab` or `dynamic`, the fixture of the flow that has the agents, is asked for by its name.
    """
    given = set(flow.keywords) if isinstance(flow, partial) else set()
    fixtures = {
        name: request.getfixturevalue(name)
        for name in inspect.signature(flow).parameters
        if name not in given
    }
    lab = fixtures["lab"] if "lab" in fixtures else fixtures["dynamic"]
    rights.confine(lab)
    flow(**fixtures)
    assert refusals(lab) == []


def show(capsys: pytest.CaptureFixture[str], title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print what was tried and what the API server said, also where a test passes."""
    with capsys.disabled():
        print(f"\n{title}")
        for tried, said in rows:
            print(f"  {tried}\n      {said}")
