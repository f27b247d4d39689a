"""The lowest layer: the distribution's packages, extracted, without what no program reads."""

import datetime as dt
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from image.running import CACHE, BuildFailed, remove, run, turn, used

HERE = Path(__file__).parent
SUITE = "bookworm"
PYTHON = "/usr/bin/python3.11"

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
    *("usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/test", "usr/lib/python3.11/config-*"),
    # It alone needs the 36 MB of ICU, and checks names in directories for look-alikes.
    *("usr/sbin/xfs_scrub*", "usr/lib/*/libicu*"),
    *("var/cache", "var/lib/apt", "var/lib/dpkg", "var/log", "var/backups"),
)
_DIRECTORIES = ("dev", "proc", "root", "run", "sys", "tmp", "var/lib/dpkg/status.d", "var/tmp")
_USERS = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
localvolume:x:65532:65532:localvolume:/nonexistent:/usr/sbin/nologin
"""
_GROUPS = "root:x:0:\ndisk:x:6:\nnogroup:x:65534:\nlocalvolume:x:65532:\n"


def names() -> list[str]:
    """The packages that are asked for by name."""
    lines = (HERE / "packages").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def record_file() -> Path:
    """Where the versions of all packages are written down, for this machine's architecture."""
    return HERE / f"packages.{run(['dpkg', '--print-architecture']).strip()}"


def build() -> Path:
    """The base as a tar, from the cache if it is there; raises BuildFailed.

    Of the recorded versions; of the newest, and it says so, where the mirror has these no more.
    """
    file = record_file()
    pinned = file.read_text().split() if file.exists() else []
    if pinned:
        try:
            return _cached(pinned)
        except BuildFailed as error:
            lines = str(error).splitlines()
            why = next((line for line in lines if line.startswith("E: ")), lines[-1])
            print(f"image: not with the versions of {file.name}, so with the newest: {why}")
    return _cached(names(), dt.datetime.now(dt.UTC).date().isoformat())


def record() -> str:
    """The newest versions, a line each, `name=version`; raises BuildFailed."""
    with turn(), tempfile.TemporaryDirectory(dir=CACHE) as directory:
        root = Path(directory, "root")
        extract(names(), SUITE, root, sources())
        return "".join(f"{line}\n" for line in sorted(_describe(root)))


def _cached(wanted: list[str], day: str = "") -> Path:
    texts = [path.read_text() for path in (Path(__file__), HERE / "lvm.conf")]
    recipe = "\n".join([*sorted(wanted), day, os.uname().machine, *texts])
    path = CACHE / f"base-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.tar"
    if path.exists():
        return used(path)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        root, new = Path(directory, "root"), Path(directory, "base.tar")
        extract(wanted, SUITE, root, sources())
        _describe(root)
        _trim(root)
        _complete(root)
        _compile(root)
        pack(root, new)
        new.rename(path)
    return used(path)


def extract(wanted: list[str], suite: str, root: Path, lines: list[str]) -> None:
    """Packages and what they need, from lines of sources.list; what Debian does not sign is not
    asked. Raises BuildFailed."""
    argv = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
    argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--skip=cleanup/apt/cache"]
    argv += [f"--aptopt={line}" for line in _ways()]
    run([*argv, f"--include={','.join(wanted)}", suite, root, *lines])


def _ways() -> list[str]:
    """How this machine's apt reaches mirrors: through which proxy, trusting whom."""
    lines = run(["apt-config", "dump"]).splitlines()
    ways = ("Acquire::http::", "Acquire::https::", "Acquire::Check-")
    return ['Acquire::Retries "3";', *(one for one in lines if one.startswith(ways))]


def sources() -> list[str]:
    """Where this machine's apt has the suite, as lines of sources.list; raises BuildFailed."""
    if found := _listed([]):
        return found
    # Nothing is known of what was never fetched: fetched aside, it changes nothing here.
    with tempfile.TemporaryDirectory() as directory:
        places = {"Dir::State::Lists": "lists", "Dir::Cache": "cache"}
        aside = [f"-o{option}={directory}/{name}" for option, name in places.items()]
        for name in ("lists/partial", "cache/archives/partial"):
            Path(directory, name).mkdir(parents=True)
        run(["apt-get", "update", *aside])
        found = _listed(aside)
    if not found:
        raise BuildFailed(f"apt here has no packages of Debian {SUITE}: build where it has")
    return found


def _listed(options: list[str]) -> list[str]:
    what = "$(CREATED_BY)|$(ORIGIN)|$(CODENAME)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    lines = run(["apt-get", "indextargets", *options, "--format", what]).splitlines()
    wanted = (f"Packages|Debian|{SUITE}|", f"Packages|Debian|{SUITE}-")
    chosen = {line.split("|", 3)[3] for line in lines if line.startswith(wanted)}
    return sorted(line for line in chosen if line.endswith(" main"))


def _describe(root: Path) -> list[str]:
    """Write what is in the image where scanners look; `name=version` of each package."""
    place = root / "var/lib/dpkg/status.d"
    place.mkdir(parents=True, exist_ok=True)
    found = []
    for archive in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        control = run(["dpkg-deb", "--field", archive])
        fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line)
        found.append(f"{fields['Package']}={fields['Version']}")
        (place / fields["Package"]).write_text(control)
    if not found:
        raise BuildFailed("mmdebstrap left no archives to read the versions from")
    return found


def _trim(root: Path) -> None:
    kept = root / "var/lib/dpkg/status.d"
    kept.rename(root.parent / "status.d")
    for pattern in _UNREAD:
        remove(root, pattern)
    for path in (root / "usr/share/doc").rglob("*"):
        if path.name != "copyright" and not path.is_dir():
            path.unlink()


def _complete(root: Path) -> None:
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    described = root.parent / "status.d"
    for path in described.iterdir():
        shutil.copyfile(path, root / "var/lib/dpkg/status.d" / path.name)
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    shutil.copyfile(HERE / "lvm.conf", root / "etc/lvm/lvm.conf")
    for directory, _, files in os.walk(root):
        for name in files:
            path = Path(directory, name)
            mode = path.lstat().st_mode
            # Agent and controller are who they are; nobody becomes another here.
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _compile(root: Path) -> None:
    compileall = [
        *("-m", "compileall", "-q", "-o", "2", "--invalidation-mode", "unchecked-hash"),
        "/usr/lib/python3.11",
    ]
    run(["chroot", root, PYTHON, *compileall], environment={"PYTHONHASHSEED": "0"})


def pack(root: Path, archive: Path) -> None:
    """A tar of a tree, the same bytes for the same files."""
    same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    run(["tar", *same, "--format=gnu", "-C", root, "-cf", archive, "."])
