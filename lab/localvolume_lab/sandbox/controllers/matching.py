"""Which volume suits a claim, and which node suits a volume or a pod.

Rules of k8s.io/component-helpers/storage/volume (pv_helpers.go, FindMatchingVolume) and of
component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from localvolume_lab.sandbox.rules import quantities

Body = Mapping[str, Any]
Stored = dict[str, Any]


def class_of(body: Body) -> str:
    """The class of a claim or volume; the old annotation counts first."""
    annotated = (
        body["metadata"].get("annotations", {}).get("volume.beta.kubernetes.io/storage-class")
    )
    return str(annotated or body["spec"].get("storageClassName", ""))


def is_for(volume: Body, claim: Body) -> bool:
    """Whether the volume's claimRef names this claim (its UID may still be missing)."""
    reference = volume["spec"].get("claimRef")
    meta = claim["metadata"]
    return bool(
        reference
        and reference.get("namespace") == meta["namespace"]
        and reference.get("name") == meta["name"]
        and reference.get("uid", "") in {"", meta["uid"]}
    )


def satisfies(volume: Body, claim: Body) -> bool:
    """Whether the volume's size, class, mode and access modes are enough for the claim."""
    spec, wanted = volume["spec"], claim["spec"]
    return (
        _size(volume) >= asked(claim)
        and class_of(volume) == class_of(claim)
        and spec.get("volumeMode") == wanted.get("volumeMode")
        and set(wanted.get("accessModes", [])) <= set(spec.get("accessModes", []))
    )


def best_volume(
    volumes: Iterable[Stored], claim: Body, *, node: Body | None = None, only_prebound: bool = False
) -> Stored | None:
    """The volume to bind: one already meant for the claim, else the smallest that fits."""
    selector = claim["spec"].get("selector")
    candidates = []
    for volume in volumes:
        spec, meta = volume["spec"], volume["metadata"]
        if "deletionTimestamp" in meta or spec.get("volumeMode") != claim["spec"].get("volumeMode"):
            continue
        if node is not None and not node_suits_volume(node, volume):
            continue
        if is_for(volume, claim):
            if _size(volume) >= asked(claim):
                return volume
            continue
        if (
            only_prebound
            or spec.get("claimRef")
            or volume["status"].get("phase") != "Available"
            or not satisfies(volume, claim)
            or (selector is not None and not selector_matches(selector, meta.get("labels", {})))
        ):
            continue
        candidates.append(volume)
    return min(candidates, key=lambda v: (_size(v), v["metadata"]["name"]), default=None)


def _size(volume: Body) -> Any:
    return quantities.value(volume["spec"].get("capacity", {}).get("storage", "0"))


def asked(claim: Body) -> Any:
    """How much it asks for, in bytes."""
    return quantities.value(
        claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
    )


def selector_matches(selector: Body, labels: Body) -> bool:
    """A LabelSelector (meta/v1) over labels."""
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _requirement(item, labels) for item in selector.get("matchExpressions") or []
    )


def _requirement(item: Body, labels: Body) -> bool:
    actual, values = labels.get(item["key"]), item.get("values") or []
    match item.get("operator"):
        case "In":
            return actual in values
        case "NotIn":
            return actual not in values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(actual or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
    return False


def node_suits_volume(node: Body, volume: Body) -> bool:
    """Whether the volume can be reached from the node."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or _terms_match(required.get("nodeSelectorTerms") or [], node)


def _terms_match(terms: Iterable[Body], node: Body) -> bool:
    """Any term; a term without requirements matches nothing."""
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in terms:
        expressions, by_field = term.get("matchExpressions") or [], term.get("matchFields") or []
        if (expressions or by_field) and (
            all(_requirement(item, labels) for item in expressions)
            and all(_requirement(item, fields) for item in by_field)
        ):
            return True
    return False


def node_takes_pod(node: Body, pod: Body) -> bool:
    """Whether node selector, required node affinity, taints and cordon let the pod in."""
    spec, node_spec = pod["spec"], node.get("spec", {})
    labels = node["metadata"].get("labels", {})
    if node_spec.get("unschedulable"):
        return False
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not _terms_match(affinity.get("nodeSelectorTerms") or [], node):
        return False
    return all(
        any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or [])
        for taint in node_spec.get("taints") or []
        if taint.get("effect") in {"NoSchedule", "NoExecute"}
    )


def _tolerates(toleration: Body, taint: Body) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
