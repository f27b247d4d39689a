"""What this machine can test: probes that try the thing itself, each with its remedy in words."""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import pytest

_BUILT = frozenset(
    {"controlplane", "coredns", "kubectl", "kubelet", "csi-sanity", "csi-sidecars", "snapshots"}
)


def needs_of(item: pytest.Item) -> list[str]:
    """What a test's `needs` marks name."""
    return list(dict.fromkeys(name for mark in item.iter_markers("needs") for name in mark.args))


def missing(name: str) -> tuple[str, ...]:
    """What this machine lacks for the capability or program `name`, each with what helps; empty
    where it has all of it. The capability itself is tried only where nothing is lacking for it."""
    if name not in PROBES:
        return tuple(filter(None, [lacking(name)]))
    absent = dict.fromkeys(reason for part in _takes(name) for reason in missing(part))
    return tuple(absent) or tuple(filter(None, [PROBES[name]()]))


def lacking(program: str) -> str | None:
    """None where the program is there, else which package has it (programs.txt)."""
    if shutil.which(program):
        return None
    return f"there is no {program}: install {packages().get(program, program)}"


def programs_of(names: Iterable[str]) -> set[str]:
    """The programs that a test may start which needs these."""
    found: set[str] = set()
    for name in names:
        found |= {name, *programs_of(_takes(name))}
    return found


def remedy(reasons: Iterable[str]) -> str | None:
    """The one command that adds what those reasons name, None where they name no package."""
    words = {
        word.rstrip(".,;")
        for reason in reasons
        for told in re.findall(r"install (.+)", reason)
        for word in told.split()
    }
    absent = sorted(words & {*packages().values()})
    return f"apt-get install {' '.join(absent)}" if absent else None


@functools.cache
def packages() -> dict[str, str]:
    """The package by the program it has: all programs that tests run."""
    lines = Path(__file__).with_name("programs.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def build(wanted: Collection[str] = _BUILT) -> None:
    """Have what is built for tests built now: the first time takes minutes, and says so."""
    for name in sorted(_BUILT.intersection(wanted)):
        missing(name)


def known() -> list[str]:
    return sorted({*PROBES, *packages()})


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
    with tempfile.NamedTemporaryFile(prefix="localvolume-probe-") as file:
        file.truncate(1 << 20)
        done = subprocess.run(
            ["losetup", "--find", "--show", file.name], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"this kernel or container gives no loop devices ({done.stderr.strip()})"
        problem = _tried(["losetup", "--detach", done.stdout.strip()])
    return None if problem is None else f"a loop device cannot be detached again ({problem})"


@functools.cache
def _fuse() -> str | None:
    """Filesystems whose servers are tests: /dev/fuse, and the right to mount what it serves."""
    from tests.host.support_mounts import MNT_DETACH, mount, umount

    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"this kernel or container has no /dev/fuse ({error.strerror})"
    try:
        with tempfile.TemporaryDirectory(prefix="localvolume-probe-") as name:
            options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
            mount("probe", name, "fuse", data=options)
            umount(name, MNT_DETACH)
    except OSError as error:
        return f"this kernel or container mounts no fuse ({error.strerror})"
    finally:
        os.close(server)
    return None


@functools.cache
def _filesystem(kind: str) -> str | None:
    """Make one in a file and mount it, in a mount namespace that takes both away again."""
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
def _throttling() -> str | None:
    """Limits of reading and writing, in either layout of control groups."""
    from localvolume.host.cgroups import NoGroups, hierarchy_in

    try:
        found = hierarchy_in("/sys/fs/cgroup")
        os.rmdir(tempfile.mkdtemp(prefix="localvolume-probe-", dir=found.root))
    except NoGroups as problem:
        return f"this kernel or container limits no reading and writing ({problem})"
    except OSError as error:
        return f"the control groups cannot be written to ({error.strerror})"
    return None


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
    from localvolume_lab.controlplane import ComponentsMissing
    from localvolume_lab.controlplane.build import find_go

    try:
        found = find_go()
    except ComponentsMissing as problem:
        return str(problem)
    if (named := shutil.which("go")) is None or not found.samefile(named):
        # Tests and `make` call it by name.
        os.environ["PATH"] = f"{found.parent}{os.pathsep}{os.environ['PATH']}"
    return None


@functools.cache
def _controlplane() -> str | None:
    """Builds it where it is not there yet: the first time takes minutes, and says so."""
    from localvolume_lab.controlplane import ComponentsMissing, provide

    try:
        provide()
    except ComponentsMissing as problem:
        # Most often it is Go, and that is told once.
        return _go() or f"no real control plane: {problem}"
    return None


@functools.cache
def _coredns() -> str | None:
    """Builds it where it is not there yet, and says so."""
    from localvolume_lab.controlplane import ComponentsMissing
    from localvolume_lab.controlplane.node import dns

    try:
        dns.provide()
    except ComponentsMissing as problem:
        return _go() or f"no name server: {problem}"
    return None


@functools.cache
def _csi_tools(*names: str) -> str | None:
    """Builds those that are not there yet, and says so."""
    from localvolume_lab.controlplane import ComponentsMissing
    from tests.suite import csitools

    try:
        for name in names:
            csitools.provide(name)
    except ComponentsMissing as problem:
        return _go() or f"no {name}: {problem}"
    return None


@functools.cache
def _csi_sidecars() -> str | None:
    from tests.suite.csitools import SIDECARS

    return _csi_tools(*SIDECARS)


@functools.cache
def _kubelet() -> str | None:
    """A node of the real control plane that runs pods."""
    from localvolume_lab.controlplane.node import missing as missing_for_node

    if (reason := missing_for_node()) is not None:
        return reason
    tried = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "x", "/run"]
    if (problem := _tried(tried)) is not None:
        return f"this kernel or container allows no namespaces for a node ({problem})"
    from localvolume_lab.controlplane import ComponentsMissing, provide

    try:
        provide(["kubelet"])
    except ComponentsMissing as problem:
        return f"no real kubelet: {problem}"
    return None


@functools.cache
def _cni() -> str | None:
    from localvolume_lab.controlplane.node.requirements import NodeFailed, plugins

    try:
        plugins()
    except NodeFailed as problem:
        return str(problem)
    return None


@functools.cache
def _guest() -> str | None:
    """A kernel with all that this machine's may lack, in a process."""
    from tests.kernel.support_kernel import missing as missing_for_guest

    return missing_for_guest()


@functools.cache
def _image() -> str | None:
    """The container image can be built."""
    from tests.node.support_image import missing as missing_for_image

    return missing_for_image()


@functools.cache
def _databases() -> str | None:
    """Images of databases can be made."""
    from tests.databases.support_images import missing as missing_for_databases

    return "; ".join(missing_for_databases()) or None


@functools.cache
def _kubectl() -> str | None:
    if shutil.which("kubectl") is not None:
        return None
    if reason := _controlplane():
        return reason
    from localvolume_lab.controlplane import provide

    # Tests call it by name.
    os.environ["PATH"] += f"{os.pathsep}{provide(['kubectl'])['kubectl'].parent}"
    return None


def _takes(name: str) -> tuple[str, ...]:
    """The capabilities and programs without which there is no use in trying `name`."""
    if name == "guest":
        from tests.kernel.support_guest import PROGRAMS

        return PROGRAMS
    return _TAKES.get(name, ())


_FILESYSTEM = ("loop", "mount", "unshare")
_TAKES = {
    "btrfs": (*_FILESYSTEM, "mkfs.btrfs"),
    "databases": ("root", "mmdebstrap"),
    "ext4": (*_FILESYSTEM, "mkfs.ext4"),
    "fuse": ("root",),
    "image": ("root", "buildah", "mmdebstrap", "mount", "unshare", "flexclient"),
    "flexclient": ("go", "make"),
    "kubelet": (
        *("root", "busybox", "containerd", "ctr", "ip", "ldd", "mount", "openssl", "runc"),
        *("unshare", "cni", "controlplane"),
    ),
    # The product wipes the disks that tests have.
    "loop": ("root", "losetup", "partx", "wipefs"),
    "prometheus": ("promtool",),
    "throttling": ("root",),
    "userns": ("unshare",),
    "xfs": (*_FILESYSTEM, "mkfs.xfs"),
}
PROBES: dict[str, Callable[[], str | None]] = {
    "btrfs": functools.partial(_filesystem, "btrfs"),
    "cni": _cni,
    "controlplane": _controlplane,
    "coredns": _coredns,
    "csi-sanity": functools.partial(_csi_tools, "csi-sanity"),
    "csi-sidecars": _csi_sidecars,
    "databases": _databases,
    "ext4": functools.partial(_filesystem, "ext4"),
    "flexclient": lambda: None,
    "fuse": _fuse,
    "go": _go,
    "guest": _guest,
    "image": _image,
    "kubectl": _kubectl,
    "kubelet": _kubelet,
    "loop": _loop,
    "prometheus": functools.partial(lacking, "prometheus"),
    "root": _root,
    "snapshots": functools.partial(_csi_tools, "snapshot-controller"),
    "throttling": _throttling,
    "userns": _userns,
    "xfs": functools.partial(_filesystem, "xfs"),
}
