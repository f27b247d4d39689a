"""The lowest layer: the distribution's packages, extracted, without what no program reads."""

import datetime as dt
import functools
import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from image import pins
from image.architectures import here
from image.mirror import SUITE, extract, offered, sources
from image.pins import Package
from image.running import CACHE, BuildFailed, remove, run, turn, used

HERE = Path(__file__).parent
#: Of the image's Python; image/packages and image/Containerfile name it, too.
VERSION = "3.13"
PYTHON = f"/usr/bin/python{VERSION}"
LIBRARY = f"usr/lib/python{VERSION}"
#: Settings of programs, and where they look for them.
_SETTINGS = {"lvm.conf": "etc/lvm/lvm.conf", "mke2fs.conf": "etc/mke2fs.conf"}
#: Where an image says of which packages it is, a file each.
STATUS = "var/lib/dpkg/status.d"
#: And where it lists the files of each, for scanners as for our own bill.
LISTS = "var/lib/dpkg/info"
_GONE = """the mirror has no more what is recorded:
{}
Record the newest (python -m image --record) and look at what that changes, or let the image be of
others than are recorded (python -m image --allow-newest)."""
_OTHERS = """other packages came than are recorded (python -m image --record):
{}"""
_CHANGED = """an archive has changed and its version has not; the image is not built:
{}"""

#: What goes, as patterns below the root. Of usr/share/doc the licences stay.
_UNREAD = (
    *("dev/*", "boot", "home", "media", "mnt", "opt", "srv", "etc/apt", "etc/cron*", "etc/init.d"),
    *("usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/bug"),
    *("usr/share/bash-completion", "usr/share/zsh", "usr/share/pixmaps", "usr/share/applications"),
    *(
        "usr/share/perl5",
        "usr/share/menu",
        "usr/share/initramfs-tools",
        "usr/share/binfmts",
        "usr/share/gdb",
    ),
    *("usr/lib/systemd", "usr/lib/udev", "usr/lib/tmpfiles.d", "usr/lib/*/gconv"),
    *(f"{LIBRARY}/pydoc_data", f"{LIBRARY}/test", f"{LIBRARY}/config-*"),
    # It alone needs D-Bus and the 36 MB of ICU, and checks names in directories for look-alikes.
    *("usr/sbin/xfs_scrub*", "usr/lib/*/libicu*", "usr/lib/python3/dist-packages"),
    *("usr/lib/*/libdbus-*", "usr/lib/*/libg[imot]*-2.0.so*", "usr/lib/*/libglib-2.0.so*"),
    "usr/lib/*/glib-2.0",
    # Times are written in UTC.
    "usr/share/zoneinfo",
    # mmdebstrap copies them from the machine that builds; kubelet gives each pod its own.
    *("etc/fstab", "etc/hostname", "etc/resolv.conf"),
    *("var/cache", "var/lib/apt", "var/lib/dpkg", "var/log", "var/backups"),
)
_DIRECTORIES = ("dev", "proc", "root", "run", "sys", "tmp", STATUS, LISTS, "var/tmp")
#: Links at the top to what lies below usr since Debian 12.
_MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_USERS = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
localvolume:x:65532:65532:localvolume:/nonexistent:/usr/sbin/nologin
"""
_GROUPS = "root:x:0:\ndisk:x:6:\nnogroup:x:65534:\nlocalvolume:x:65532:\n"


class _Refused(BuildFailed):
    """The mirror has what is recorded by name and version, and that was not all."""


def names() -> list[str]:
    """The packages that are asked for by name."""
    lines = (HERE / "packages").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def record_file(architecture: str | None = None) -> Path:
    """Where the versions of all packages are written down; this machine's if none is named."""
    return HERE / f"packages.{architecture or here()}"


def build(
    *,
    allow_newest: bool = False,
    file: Path | None = None,
    mirrors: Callable[[], list[str]] = sources,
    architecture: str | None = None,
) -> Path:
    """The base as a tar, from the cache if it is there; raises BuildFailed.

    Of the packages that are recorded in `file`, and of nothing else. `allow_newest`: where the
    `mirrors` do not have these, of the newest, and it says what differs.
    """
    of = architecture or here()
    recorded = _recorded(file or record_file(of))
    # Its Python compiles for the others.
    native = None
    if of != here():
        native = build(allow_newest=allow_newest, mirrors=mirrors)
    make = functools.partial(_cached, recorded=recorded, mirrors=mirrors, of=of, native=native)
    try:
        return make([package.asked_for for package in recorded])
    except _Refused:
        raise
    except BuildFailed as error:
        there = offered([package.name for package in recorded], mirrors(), of)
        unmet = pins.gone(recorded, there)
        if not unmet:
            raise
        if not allow_newest:
            raise BuildFailed(_GONE.format("\n".join(unmet))) from error
    print("image: not of what is recorded, so of the newest:", *unmet, sep="\n  ")
    base = make(names(), day=dt.datetime.now(dt.UTC).date().isoformat())
    print("image: what differs:", *pins.differences(recorded, packages(base)), sep="\n  ")
    return base


def record(architecture: str) -> str:
    """The newest packages, a line each; raises BuildFailed."""
    with turn(), tempfile.TemporaryDirectory(dir=CACHE) as directory:
        root = Path(directory, "root")
        extract(names(), SUITE, root, sources(), architecture)
        return pins.written(_describe(root))


def packages(base: Path) -> list[Package]:
    """What a base is made of, by what it says itself."""
    return sorted(_package(one) for one in described(base))


def described(base: Path) -> list[dict[str, str]]:
    """The same, as `fields` of each package."""
    with tarfile.open(base) as archive:
        return [
            fields(file.read().decode())
            for member in archive
            if member.name.startswith(f"./{STATUS}/") and (file := archive.extractfile(member))
        ]


def owners(base: Path) -> dict[str, str]:
    """The packages that the files and links of a base come from, by their paths."""
    found: dict[str, str] = {}
    with tarfile.open(base) as archive:
        for member in archive:
            place, _, name = member.name.removeprefix("./").rpartition("/")
            if place == LISTS and (file := archive.extractfile(member)):
                package = name.removesuffix(".list")
                found |= dict.fromkeys(file.read().decode().splitlines(), package)
    return found


def fields(text: str) -> dict[str, str]:
    """Those of a package's description that take one line."""
    lines = (line.partition(": ") for line in text.splitlines() if not line.startswith(" "))
    return {name: value for name, _, value in lines}


def _package(described: dict[str, str]) -> Package:
    return Package(described["Package"], described["Version"], described["SHA256"])


def _recorded(file: Path) -> list[Package]:
    if not file.exists():
        raise BuildFailed(f"there is no {file.name}: python -m image --record, and look at it")
    try:
        return pins.read(file.read_text())
    except BuildFailed as error:
        raise BuildFailed(f"{file.name}: {error}") from error


def _cached(
    wanted: list[str],
    recorded: list[Package],
    mirrors: Callable[[], list[str]],
    of: str,
    native: Path | None,
    day: str = "",
) -> Path:
    """A base of what is `wanted`: of exactly what is recorded, or, on a `day`, of the newest.

    `of` is the architecture; `native` is a base that runs here, if this one does not.
    """
    texts = [path.read_text() for path in (Path(__file__), *(HERE / name for name in _SETTINGS))]
    recipe = "\n".join([*sorted(wanted), pins.written(recorded), day, of, *texts])
    path = CACHE / f"base-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.tar"
    if path.exists():
        return used(path)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        root, new = Path(directory, "root"), Path(directory, "base.tar")
        extract(wanted, SUITE, root, mirrors(), of)
        found, owned = _describe(root), _owned(root)
        if not day and (wrong := pins.differences(recorded, found)):
            raise _Refused(_OTHERS.format("\n".join(wrong)))
        if wrong := pins.changed(recorded, found):
            raise _Refused(_CHANGED.format("\n".join(wrong)))
        _trim(root)
        _complete(root, owned)
        _compile(root, native)
        pack(root, new)
        new.rename(path)
    return used(path)


def _describe(root: Path) -> list[Package]:
    """Write what is in the image where scanners look, with each archive's digest as mirrors do."""
    place = root / STATUS
    place.mkdir(parents=True, exist_ok=True)
    found = []
    for archive in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        text = f"{run(['dpkg-deb', '--field', archive]).rstrip()}\nSHA256: {digest}\n"
        package = _package(fields(text))
        found.append(package)
        (place / package.name).write_text(text)
    if not found:
        raise BuildFailed("mmdebstrap left no archives to read the versions from")
    return found


def _owned(root: Path) -> dict[str, list[str]]:
    """The paths of files and links in each package's archive, as they are in the image."""
    found = {}
    for archive in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        name = run(["dpkg-deb", "--field", archive, "Package"]).strip()
        # Mode, owner, size, day, time, name; the last of a link tells also of what.
        lines = [
            line.split(None, 5) for line in run(["dpkg-deb", "--contents", archive]).splitlines()
        ]
        paths = [re.split(" -> | link to ", line[5])[0] for line in lines if line[0][0] != "d"]
        found[name] = sorted(_merged(path.removeprefix("./")) for path in paths)
    return found


def _merged(path: str) -> str:
    return f"usr/{path}" if path.partition("/")[0] in _MERGED else path


def _trim(root: Path) -> None:
    kept = root / STATUS
    kept.rename(root.parent / "status.d")
    for pattern in _UNREAD:
        remove(root, pattern)
    for path in (root / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and not path.is_dir():
            path.unlink()


def _complete(root: Path, owned: Mapping[str, Sequence[str]]) -> None:
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    described = root.parent / "status.d"
    for path in described.iterdir():
        shutil.copyfile(path, root / STATUS / path.name)
    for name, paths in owned.items():
        left = [f"/{path}\n" for path in paths if os.path.lexists(root / path)]
        (root / LISTS / f"{name}.list").write_text("".join(left))
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    for name, place in _SETTINGS.items():
        shutil.copyfile(HERE / name, root / place)
    for directory, _, files in os.walk(root):
        for name in files:
            path = Path(directory, name)
            mode = path.lstat().st_mode
            # Agent and controller are who they are; nobody becomes another here.
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _compile(root: Path, native: Path | None) -> None:
    """Compile the library with the Python of `root`, or of `native` where that is given: bytecode
    is the same for all processors."""
    compileall = ["-m", "compileall", "-q", "-o", "2", "--invalidation-mode", "unchecked-hash"]
    # No variable of the machine that builds counts. Python is not to write what it imports itself.
    python = ["/usr/bin/env", "-i", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1", PYTHON]
    if native is None:
        run(["chroot", root, *python, *compileall, f"/{LIBRARY}"])
        return
    compiler = root.parent / "compiler"
    compiler.mkdir()
    run(["tar", "-C", compiler, "-xf", native])
    aside = "tmp/library"
    (root / LIBRARY).rename(compiler / aside)
    places = ["-s", f"/{aside}", "-p", f"/{LIBRARY}", f"/{aside}"]
    run(["chroot", compiler, *python, *compileall, *places])
    (compiler / aside).rename(root / LIBRARY)


def pack(root: Path, archive: Path) -> None:
    """A tar of a tree, the same bytes for the same files."""
    same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    run(["tar", *same, "--format=gnu", "-C", root, "-cf", archive, "."])
