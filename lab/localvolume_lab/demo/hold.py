"""What to try while everything is kept up."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys

from localvolume_lab.demo.cluster import Names, claim_manifest
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.product import Product


def introduce(
    narrator: Narrator,
    names: Names,
    agent: Product,
    *,
    home: str,
    kubeconfig: str,
    kubectl: str | None,
    root: bool,
    copies: bool,
    pods: bool,
) -> None:
    """Print commands for another terminal; `kubectl` is where it is when it is not on PATH.

    `pods`: whether the cluster has pods that stand for agent and controller.
    """
    claim = f"{home}/claim.json"
    with open(claim, "w", encoding="utf-8") as file:
        body = claim_manifest("mine", names.made, "20Mi", block=False)
        json.dump(body, file, indent=1)
    program = "kubectl"
    if shutil.which("kubectl") is None:
        program = kubectl or "kubectl"
    user = "" if root else "--user "
    ours = _ours()
    lines = [
        f"export KUBECONFIG={shlex.quote(kubeconfig)}",
        f"{ours} status",
        f"{ours} why pvc/diary -n {names.namespace}",
        f"{ours} ui",
        f"{program} get persistentvolumes",
        f"{program} -n default get events",
        f"{program} describe pv",
        f"{program} -n {names.namespace} apply -f {shlex.quote(claim)}",
        f"{program} -n {names.namespace} delete pvc mine",
        *([f"{program} -n {names.namespace} get volumesnapshots"] if copies else []),
        f"curl http://127.0.0.1:{agent.port}/metrics",
        f"tail -f {shlex.quote(agent.log)}",
        f"nsenter --target {os.getpid()} {user}--mount ls -l {shlex.quote(home)}/pool",
    ]
    narrator.plain()
    narrator.title("Held up for you. In another terminal:")
    for line in lines:
        narrator.plain(f"  {line}")
    narrator.say(
        "(Agent and controller are processes here. The sandbox has a pod for each, so that status"
        " finds them.)"
        if pods
        else "(What runs here are processes and no pods, so status does not find them.)"
    )
    if shutil.which("kubectl") is None and kubectl is None:
        narrator.say("(There is no kubectl on this machine's PATH.)")
    narrator.title("Ctrl-C removes everything.")


def _ours() -> str:
    """How to type the command: as it was installed beside this Python, or as a module of it."""
    program = os.path.join(os.path.dirname(sys.executable), "localvolume")
    if os.access(program, os.X_OK):
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -m localvolume"
