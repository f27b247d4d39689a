"""Images made from this machine's own files: what holds a pod, and a shell for pods.

Their references name no registry that exists: kubelet never pulls what is there already.
"""

import subprocess
from pathlib import Path

from localvolume_lab.controlplane.node import files
from localvolume_lab.controlplane.node.archive import Layer, write
from localvolume_lab.controlplane.node.requirements import NodeFailed, program

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_WAIT = 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done'


def pause_image(path: Path, reference: str) -> None:
    """What holds a pod's namespaces: it waits, and ends when asked; raises NodeFailed."""
    _write(path, reference, ["/bin/sh", "-c", _WAIT])


def busybox_image(path: Path, reference: str) -> None:
    """A shell and the usual small programs; raises NodeFailed where there is no busybox."""
    _write(path, reference, ["/bin/sh"])


def _write(path: Path, reference: str, command: list[str]) -> None:
    write(path, reference, [_busybox()], command=command, environment=_ENVIRONMENT)


def _busybox() -> Layer:
    layer = Layer()
    for name in ("dev", "etc", "proc", "root", "run", "sys", "usr/bin", "var/log", "var/tmp"):
        layer.directory(name)
    layer.directory("tmp", 0o1777)
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    layer.file("etc/group", b"root:x:0:\n")
    busybox = program("busybox")
    layer.copy(busybox, "bin/busybox")
    for name, library in files.libraries([Path(busybox)]).items():  # none for the static one
        layer.copy(library, name)
    done = subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        raise NodeFailed(f"busybox --list: {done.stderr.strip()}")
    for name in done.stdout.split():
        if name != "busybox":
            layer.link(f"bin/{name}", "busybox")
    layer.link("usr/bin/env", "/bin/busybox")
    return layer
