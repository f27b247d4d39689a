"""python -m localvolume_lab.controlplane: build, up, down, and kubectl against what is up."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from localvolume_lab.controlplane import detached
from localvolume_lab.controlplane.assets import PLANE, ComponentsMissing
from localvolume_lab.controlplane.build import provide
from localvolume_lab.controlplane.node import (
    KubeletNode,
    NodeFailed,
    entering,
    make_client,
    missing,
)
from localvolume_lab.controlplane.plane import ControlPlane, PlaneFailed
from localvolume_lab.controlplane.running import START_SECONDS


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m localvolume_lab.controlplane",
        description="A real Kubernetes control plane on this machine.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the components now, if they are not there")
    up = commands.add_parser("up", help="start it; Ctrl-C ends it")
    up.add_argument("--detach", action="store_true", help="return once it is ready")
    up.add_argument(
        "--node",
        metavar="NAME",
        action="append",
        default=[],
        help="with a real node of that name, whose pods run: as root; may be given again",
    )
    up.add_argument(
        "--image",
        metavar="ARCHIVE",
        action="append",
        default=[],
        help="a docker archive that every such node has; may be given again",
    )
    commands.add_parser("down", help="end the one that is up")
    commands.add_parser("kubectl", help="kubectl against the one that is up", add_help=False)
    # What follows `kubectl` is kubectl's, options too.
    options, rest = parser.parse_known_args(argv[:1] if argv[:1] == ["kubectl"] else argv)
    if rest:
        parser.error(f"unknown: {' '.join(rest)}")
    try:
        match options.command:
            case "build":
                say(str(provide()["kube-apiserver"].parent))
            case "up":
                if options.image and not options.node:
                    parser.error("--image is for nodes: say --node")
                images = [str(Path(image).absolute()) for image in options.image]
                up_ = _up_detached if options.detach else _up
                return up_(options.node, images)
            case "down":
                say("ended" if detached.stop() else "none is up")
            case "kubectl":
                return _kubectl(argv[1:])
    except (ComponentsMissing, NodeFailed, PlaneFailed) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


_PLANE_SECONDS = START_SECONDS + 30.0
_NODE_SECONDS = START_SECONDS + 90.0
"""How long each may take until it is ready, the node with its images."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _up(names: Sequence[str], images: Sequence[str]) -> int:
    # However a person or a supervisor asks, it ends as with Ctrl-C: everything stopped first.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with detached.holding() as lock, contextlib.ExitStack() as running:
            plane, nodes = _start(running, names, images)
            holders = {node.name: node.holder for node in nodes}
            detached.say_ready(lock, holders)
            _introduce(holders)
            say("Ctrl-C ends it.")
            while True:
                plane.check()
                for node in nodes:
                    node.check()
                time.sleep(1)
    except KeyboardInterrupt:
        return 0


def _start(
    running: contextlib.ExitStack, names: Sequence[str], images: Sequence[str]
) -> tuple[ControlPlane, list[KubeletNode]]:
    """The plane and its real nodes, which end before it does."""
    directory = detached.directory()
    if not names:
        return running.enter_context(ControlPlane(directory)), []
    _must_be_possible()
    client = make_client(directory)
    plane = running.enter_context(
        ControlPlane(directory, node_controllers=True, extra_apiserver_args=client.apiserver_args)
    )
    nodes = []
    for name in names:
        node = running.enter_context(KubeletNode(plane, name, client=client))
        for image in images:
            node.import_image(image)
        nodes.append(node)
    return plane, nodes


def _must_be_possible() -> None:
    """Raises NodeFailed where this machine can have no real node."""
    if (reason := missing()) is not None:
        raise NodeFailed(reason)


def _up_detached(names: Sequence[str], images: Sequence[str]) -> int:
    if detached.running() is not None:
        raise PlaneFailed("a control plane is up already")
    if names:
        _must_be_possible()
    provide([*PLANE, "kubelet"] if names else PLANE)  # here, so that a first build is seen
    options = [f"--node={name}" for name in names] + [f"--image={image}" for image in images]
    _introduce(detached.start(options, _PLANE_SECONDS + _NODE_SECONDS * len(names)).nodes)
    say("python -m localvolume_lab.controlplane down   ends it.")
    return 0


def _introduce(holders: Mapping[str, int]) -> None:
    say(f"The control plane is up; its logs are in {detached.directory()}")
    say(f"export KUBECONFIG={detached.kubeconfig()}")
    for name, holder in holders.items():
        say(f"{shlex.join(entering(holder, ['sh']))}   is a shell in the node {name}")


def _kubectl(arguments: Sequence[str]) -> int:
    if detached.running() is None:
        raise PlaneFailed("none is up: python -m localvolume_lab.controlplane up --detach")
    program = str(provide(["kubectl"])["kubectl"])
    # By environment: flags before the name of a plugin would be an error.
    environment = {
        **os.environ,
        "KUBECONFIG": str(detached.kubeconfig()),
        "KUBECACHEDIR": str(detached.directory() / "kubectl-cache"),
    }
    os.execve(program, ["kubectl", *arguments], environment)  # noqa: S606  there is no shell to want


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
