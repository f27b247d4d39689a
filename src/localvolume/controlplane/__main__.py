"""python -m localvolume.controlplane: build, up, down, and kubectl against what is up."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence

from localvolume.controlplane import detached
from localvolume.controlplane.assets import ComponentsMissing, provide
from localvolume.controlplane.plane import ControlPlane, PlaneFailed


def main(argv: Sequence[str]) -> int:
    """Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m localvolume.controlplane",
        description="A real Kubernetes control plane on this machine.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the components now, if they are not there")
    up = commands.add_parser("up", help="start it; Ctrl-C ends it")
    up.add_argument("--detach", action="store_true", help="return once it is ready")
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
                return _up_detached() if options.detach else _up()
            case "down":
                say("ended" if detached.stop() else "none is up")
            case "kubectl":
                return _kubectl(argv[1:])
    except (ComponentsMissing, PlaneFailed) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _up() -> int:
    # However a person or a supervisor asks, it ends as with Ctrl-C: everything stopped first.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with detached.holding() as lock, ControlPlane(detached.directory()) as plane:
            detached.say_ready(lock)
            _introduce()
            say("Ctrl-C ends it.")
            while True:
                plane.check()
                time.sleep(1)
    except KeyboardInterrupt:
        return 0


def _up_detached() -> int:
    if detached.running() is not None:
        raise PlaneFailed("a control plane is up already")
    provide()  # here, so that a first build is seen
    detached.start()
    _introduce()
    say("python -m localvolume.controlplane down   ends it.")
    return 0


def _introduce() -> None:
    say(f"The control plane is up; its logs are in {detached.directory()}")
    say(f"export KUBECONFIG={detached.kubeconfig()}")


def _kubectl(arguments: Sequence[str]) -> int:
    if detached.running() is None:
        raise PlaneFailed("none is up: python -m localvolume.controlplane up --detach")
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
