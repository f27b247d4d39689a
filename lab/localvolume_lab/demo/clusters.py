"""Where it plays: the sandbox, a real control plane of its own, or a cluster of the user's."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from localvolume_lab.demo.cluster import Names
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.witness import NotSeen

_IN_SANDBOX = "they are shown in the sandbox, which stands in for a snapshot-controller"


@dataclass(frozen=True)
class Cluster:
    """`binder` says who binds claims there, `kubectl` where kubectl is, if known.

    An empty `kubeconfig` stands for the sandbox, which is started with the story. `no_copies` says
    why no snapshots are shown there, "" where they are.
    """

    description: str
    binder: str
    names: Names
    kubeconfig: str = ""
    kubectl: str | None = None
    no_copies: str = ""


def choose(
    stack: contextlib.ExitStack,
    narrator: Narrator,
    *,
    name: str,
    home: str,
    kubeconfig: str,
    real: bool,
) -> Cluster:
    """The user's where there is a `kubeconfig`; a real one is started and ends with `stack`.

    Raises NotSeen where there is none to start.
    """
    if kubeconfig:
        return Cluster(
            kubeconfig, "the cluster", Names.unique(name), kubeconfig, no_copies=_IN_SANDBOX
        )
    if not real:
        return Cluster("the sandbox, an API server in memory", "the sandbox", Names.plain())
    from localvolume_lab.controlplane import ComponentsMissing, ControlPlane, PlaneFailed, provide

    try:
        assets = provide()
        narrator.say("Starting etcd, kube-apiserver, the controllers, the scheduler ...")
        plane = stack.enter_context(ControlPlane(f"{home}/controlplane", assets=assets))
    except (ComponentsMissing, PlaneFailed) as error:
        raise NotSeen(f"there is no real control plane: {error}") from error
    return Cluster(
        f"a real control plane, {plane.url}",
        "kube-controller-manager",
        Names.plain(),
        str(plane.kubeconfig),
        str(assets["kubectl"]),
        no_copies=_IN_SANDBOX,
    )
