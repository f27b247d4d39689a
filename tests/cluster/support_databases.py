"""The manifests of docs/databases.md, and what a drain asks of their pods."""

from __future__ import annotations

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.pages import REPOSITORY, blocks_of
from tests.suite.api import BUDGETS, PODS

SHOWN = {
    block.name: block.text
    for block in blocks_of(REPOSITORY / "docs" / "databases.md")
    if block.name
}


def may_lose_one(plane: ControlPlane, name: str) -> bool:
    """Whether a drain may take a pod of that database."""
    status = plane.request("GET", f"{BUDGETS}/{name}")["status"]
    return bool(status.get("disruptionsAllowed") == 1)


def evict(plane: ControlPlane, pod: str) -> bool:
    """Have the pod leave its node, as a drain does; whether it may."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    try:
        plane.request("POST", f"{PODS}/{pod}/eviction", body)
    except RequestFailed as error:
        if error.status != 429:
            raise
        return False
    return True
