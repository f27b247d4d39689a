"""What a node sees: its own mounts and network, made by process 1 of its PID namespace."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from localvolume_lab.controlplane.node import namespaces

READY = "ready"
#: Below the node's directory, seen only inside the node: whatever kubelet and containerd keep.
STATE = "state"

#: Kernel settings that kubelet insists on, with its values (k8s.io/component-helpers sysctl).
#: They are the machine's, so the node gets files of its own that say they are set.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class WorldFailed(Exception):
    """The kernel or the container does not give a node what it needs; the message says what."""


def mounts(directory: str) -> list[list[str]]:
    """The commands that make the mounts, in order; they end with propagation as on a real node."""
    state = f"{directory}/{STATE}"
    upper, work = f"{state}/var-lib/upper", f"{state}/var-lib/work"
    fakes = f"{state}/sysctl"
    commands = [
        # Nothing that happens here may be seen outside, and nothing outside changes it.
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "proc", "proc", "/proc"],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "localvolume-node", state],
        ["mkdir", "-p", work, fakes, f"{state}/flexvolume", f"{state}/manifests"],
        ["mkdir", "-p", f"{state}/kubelet", f"{upper}/kubelet"],
        # Kubelet and CNI write to fixed places below /var/lib.
        [
            *("mount", "-t", "overlay", "-o"),
            f"lowerdir=/var/lib,upperdir={upper},workdir={work}",
            *("localvolume-node", "/var/lib"),
        ],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "localvolume-node", "/run"],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "localvolume-node", "/var/log"],
    ]
    for name in SYSCTLS:
        if os.path.exists(f"/proc/sys/{name}"):
            fake = f"{fakes}/{name.replace('/', '.')}"
            commands.append(["mount", "--bind", fake, f"/proc/sys/{name}"])
    commands.append(["mount", "--make-rshared", "/"])
    # Where others look for kubelet's directory; what is mounted in either is so in both.
    commands.append(["mount", "--bind", f"{state}/kubelet", "/var/lib/kubelet"])
    return commands


def links(service: str) -> list[list[str]]:
    """The commands for the network: pods reach the API server at the address `service`."""
    return [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{service}/32", "dev", "lo"],
    ]


def be_process_one(directory: str, service: str, answer: int) -> NoReturn:
    """Make the world, say READY or the problem to the pipe `answer`, then reap for ever."""
    try:
        namespaces.die_with_parent()
        namespaces.unshare(namespaces.NEW_MOUNTS | namespaces.NEW_NETWORK)
        _let_go_of_pipes()
        os.makedirs(f"{directory}/{STATE}", exist_ok=True)
        for command in [*mounts(directory), *links(service)]:
            _run(command)
            if f"{directory}/{STATE}/sysctl" in command:
                _write_settings(f"{directory}/{STATE}/sysctl")
        message = READY
    except (OSError, WorldFailed) as error:
        message = str(error)
    os.write(answer, message.encode())
    os.close(answer)
    if message != READY:
        os._exit(1)
    _reap()


def _let_go_of_pipes() -> None:
    # Those of the keeper: its parent must see them close when the keeper ends.
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _write_settings(directory: str) -> None:
    for name, value in SYSCTLS.items():
        with open(f"{directory}/{name.replace('/', '.')}", "w", encoding="ascii") as file:
            file.write(f"{value}\n")


def _run(command: Sequence[str]) -> None:
    environment = {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "LANG": "C"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        raise WorldFailed(f"{' '.join(command)}: {done.stderr.strip()}")


def _reap() -> NoReturn:
    """Orphans of the node come to us: shims, and what their pods leave."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        while True:
            signal.sigwait([signal.SIGCHLD])
            while True:
                try:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
    finally:
        sys.stderr.flush()
        os._exit(1)
