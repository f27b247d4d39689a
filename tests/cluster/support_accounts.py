"""Service accounts with just these rights, and kubeconfigs to act as them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import create_default_context
from typing import Any

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.chart.support_manifests import Object
from tests.cluster.support_agent import Lab
from tests.suite.api import MERGE
from tests.suite.until import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

Rule = Mapping[str, Any]


def rule(resource: str, *verbs: str, group: str = "") -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def account(lab: Lab, rules: Sequence[Rule]) -> Path:
    """A kubeconfig for the lab's one service account, which may do this and nothing else."""
    name = lab.unique
    lab.objects.make(ACCOUNTS, {"metadata": {"name": name}})
    lab.objects.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    lab.objects.make(f"{RBAC}/clusterrolebindings", binding)
    in_force(lab, rules)
    return kubeconfig(lab.plane, token(lab.plane, name), lab.directory)


def in_force(lab: Lab, rules: Sequence[Rule]) -> None:
    """Wait until the lab's account may do this."""
    _until_allowed(lab.plane, lab.unique, rules)


def roles_in_force(plane: ControlPlane, manifests: Iterable[Object]) -> None:
    """Wait until the accounts that these manifests bind, of the namespace `default`, may do what
    their roles there say."""
    them = list(manifests)
    rules = {(one["kind"], one["metadata"]["name"]): one.get("rules", []) for one in them}
    for binding in them:
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            for subject in binding["subjects"]:
                _until_allowed(plane, subject["name"], rules.get(role, []))


def _until_allowed(plane: ControlPlane, account: str, rules: Sequence[Rule]) -> None:
    """The API server learns of its own roles by watches, of each kind of object by another."""
    for one in rules:
        resource, _, subresource = one["resources"][0].partition("/")
        asked = {"group": one["apiGroups"][0], "resource": resource, "subresource": subresource}
        asked["name"] = next(iter(one.get("resourceNames", [])), "")
        until(partial(_may, plane, account, one["verbs"][0], **asked))


def may(lab: Lab, verb: str, **resource: str) -> bool:
    """Whether the lab's account may do it, as the API server says itself."""
    return _may(lab.plane, lab.unique, verb, **resource)


def _may(
    plane: ControlPlane, account: str, verb: str, *, namespace: str = "default", **resource: str
) -> bool:
    attributes = {"verb": verb, "namespace": namespace, **resource}
    user = f"system:serviceaccount:default:{account}"
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = plane.request("POST", path, review)
    return bool(answer["status"].get("allowed"))


def allow(lab: Lab, rules: Sequence[Rule]) -> None:
    """From now on it may do this instead."""
    path = f"{RBAC}/clusterroles/{lab.unique}"
    lab.plane.request("PATCH", path, {"rules": list(rules)}, content_type=MERGE)


def token(
    plane: ControlPlane,
    account: str,
    pod: Mapping[str, Any] | None = None,
    namespace: str = "default",
) -> str:
    """A token of the account, bound to the pod (and so to its node) where one is given."""
    spec: dict[str, Any] = {}
    if pod is not None:
        meta = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        spec["boundObjectRef"] = bound
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    answer = plane.request("POST", f"{path}/{account}/token", {"spec": spec})
    return str(answer["status"]["token"])


def kubeconfig(plane: ControlPlane, bearer: str, directory: Path) -> Path:
    """A kubeconfig in that directory for whoever has this token."""
    config = json.loads(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": bearer}
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@dataclass(frozen=True)
class Caller:
    """Whoever has this token, asking the API server by hand."""

    plane: ControlPlane
    bearer: str

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """One request, its answer decoded; raises RequestFailed."""
        asked = urllib.request.Request(
            self.plane.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.bearer}", "Content-Type": content_type},
        )
        trust = create_default_context(cafile=str(self.plane.ca_file))
        try:
            with urllib.request.urlopen(asked, timeout=60, context=trust) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise RequestFailed(method, path, error.code, error.read().decode()) from None

    def refusal(self, method: str, path: str, body: Any = None, *, really: bool = False) -> str:
        """What the API server says to it where it refuses, "" where it would do it (or has done it,
        if it is asked `really`). Patches are merge patches."""
        kind = MERGE if method == "PATCH" else "application/json"
        try:
            self.request(method, path if really else f"{path}?dryRun=All", body, content_type=kind)
        except RequestFailed as error:
            return str(json.loads(error.body)["message"]) if error.status == 403 else error.body
        return ""
