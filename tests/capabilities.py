"""What this machine can test: probes that try the thing itself, each with its remedy in words."""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

_BUILT = frozenset({"controlplane", "kubectl", "kubelet"})


def missing(name: str) -> str | None:
    """None where the machine has the capability `name`; else what is missing and what helps."""
    return PROBES[name]() if name in PROBES else lacking(name)


def lacking(program: str) -> str | None:
    """None where the program is there, else which package has it (programs.txt)."""
    if shutil.which(program):
        return None
    return f"there is no {program}: install {_packages().get(program, program)}"


def remedy(reasons: Iterable[str]) -> str | None:
    """The one command that adds what those reasons name, None where they name no package."""
    words = {
        word.rstrip(".,;")
        for reason in reasons
        for told in re.findall(r"install (.+)", reason)
        for word in told.split()
    }
    packages = sorted(words & {*_packages().values()})
    return f"apt-get install {' '.join(packages)}" if packages else None


@functools.cache
def _packages() -> dict[str, str]:
    lines = Path(__file__).with_name("programs.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def build(wanted: Collection[str] = _BUILT) -> None:
    """Have what is built for tests built now: the first time takes minutes, and says so."""
    for name in sorted(_BUILT.intersection(wanted)):
        missing(name)


def known() -> list[str]:
    return sorted({*PROBES, *_packages()})


def works(argv: Sequence[str]) -> bool:
    """Whether this machine has the command, and it succeeds."""
    return _tried(argv) is None


def _tried(argv: Sequence[str], timeout: float = 60.0) -> str | None:
    """None where the command succeeds, else its last words."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        return f"there is no {argv[0]}"
    except subprocess.TimeoutExpired:
        return f"{argv[0]} took longer than {timeout:.0f} s"
    if done.returncode == 0:
        return None
    return (done.stdout.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


@functools.cache
def _root() -> str | None:
    return None if os.geteuid() == 0 else "mounts and loop devices need root: run as root"


@functools.cache
def _loop() -> str | None:
    if (reason := _root()) is not None:
        return reason
    if shutil.which("losetup") is None:
        return "loop devices need losetup: install util-linux"
    with tempfile.NamedTemporaryFile(prefix="localvolume-probe-") as file:
        file.truncate(1 << 20)
        done = subprocess.run(
            ["losetup", "--find", "--show", file.name], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"this kernel or container gives no loop devices ({done.stderr.strip()})"
        problem = _tried(["losetup", "--detach", done.stdout.strip()])
    return None if problem is None else f"a loop device cannot be detached again ({problem})"


def _filesystem(kind: str, package: str) -> str | None:
    """Make one in a file and mount it, in a mount namespace that takes both away again."""
    if (reason := _loop()) is not None:
        return reason
    if shutil.which(f"mkfs.{kind}") is None:
        return f"there is no mkfs.{kind}: install {package}"
    with tempfile.TemporaryDirectory(prefix="localvolume-probe-") as name:
        image, point = Path(name, "image"), Path(name, "mounted")
        point.mkdir()
        with open(image, "wb") as file:
            file.truncate(320 << 20)  # the smallest that xfs takes, rounded up; sparse
        if (problem := _tried([f"mkfs.{kind}", str(image)])) is not None:
            return f"mkfs.{kind} fails here ({problem})"
        mount = ["mount", "-t", kind, "-o", "loop", str(image), str(point)]
        if (problem := _tried(["unshare", "--mount", *mount])) is not None:
            return f"this kernel mounts no {kind} ({problem})"
    return None


@functools.cache
def _ext4() -> str | None:
    return _filesystem("ext4", "e2fsprogs")


@functools.cache
def _xfs() -> str | None:
    return _filesystem("xfs", "xfsprogs")


@functools.cache
def _btrfs() -> str | None:
    return _filesystem("btrfs", "btrfs-progs")


@functools.cache
def _userns() -> str | None:
    problem = _tried(["unshare", "--user", "--map-root-user", "--mount", "true"])
    return (
        None
        if problem is None
        else f"this kernel or container allows no user namespace ({problem})"
    )


@functools.cache
def _go() -> str | None:
    from localvolume.controlplane import ComponentsMissing
    from localvolume.controlplane.build import find_go

    try:
        find_go()
    except ComponentsMissing as problem:
        return str(problem)
    return None


@functools.cache
def _controlplane() -> str | None:
    """Builds it where it is not there yet: the first time takes minutes, and says so."""
    from localvolume.controlplane import ComponentsMissing, provide

    try:
        provide()
    except ComponentsMissing as problem:
        return f"no real control plane: {problem}"
    return None


@functools.cache
def _kubelet() -> str | None:
    """A node of the real control plane that runs pods."""
    from localvolume.controlplane.node import missing as missing_for_node

    if (reason := missing_for_node()) is not None:
        return reason
    tried = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "x", "/run"]
    if (problem := _tried(tried)) is not None:
        return f"this kernel or container allows no namespaces for a node ({problem})"
    if (reason := _controlplane()) is not None:
        return reason
    from localvolume.controlplane import ComponentsMissing, provide

    try:
        provide(["kubelet"])
    except ComponentsMissing as problem:
        return f"no real kubelet: {problem}"
    return None


@functools.cache
def _guest() -> str | None:
    """A kernel with all that this machine's may lack, in a process."""
    from tests.kernel.support_guest import missing as missing_for_guest

    return missing_for_guest()


@functools.cache
def _image() -> str | None:
    """The container image can be built."""
    from tests.node.support_image import missing as missing_for_image

    return _root() or missing_for_image()


@functools.cache
def _kubectl() -> str | None:
    if shutil.which("kubectl") is not None:
        return None
    if _controlplane() is not None:
        return "there is no kubectl: install it, or what the real control plane needs, which has it"
    from localvolume.controlplane import provide

    # Tests call it by name.
    os.environ["PATH"] += f"{os.pathsep}{provide(['kubectl'])['kubectl'].parent}"
    return None


@functools.cache
def _prometheus() -> str | None:
    """Prometheus itself, and what checks its rules."""
    for command in ("prometheus", "promtool"):
        if shutil.which(command) is None:
            return f"there is no {command}: install prometheus"
    return None


PROBES: dict[str, Callable[[], str | None]] = {
    "btrfs": _btrfs,
    "controlplane": _controlplane,
    "ext4": _ext4,
    "go": _go,
    "guest": _guest,
    "image": _image,
    "kubectl": _kubectl,
    "kubelet": _kubelet,
    "loop": _loop,
    "prometheus": _prometheus,
    "root": _root,
    "userns": _userns,
    "xfs": _xfs,
}
