"""Images of the databases: packages of Debian, artifacts of Maven, and a script that starts them.

Each is made once, into the cache. Packages come from where this machine's apt has them, signed;
artifacts have exact versions (pom.xml), and Maven checks their sums.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from image import architectures
from image.base import fields, pack
from image.mirror import SUITE, extract, sources
from image.running import CACHE, remove, run, turn, used
from localvolume_lab.controlplane.node import archive

HERE = Path(__file__).parent / "images"
#: Whose OpenJDK is 17, which Cassandra asks for.
_DEBIAN = "bookworm"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
#: What their scripts, and tests within them, are made of.
_TOOLS = ("coreutils", "dash", "grep", "libc-bin", "sed")
_JAVA = "openjdk-17-jre-headless"
#: What goes, as patterns below the root. PostgreSQL goes without the compiler of its expressions.
_UNREAD = (
    *("dev/*", "etc/hostname", "etc/resolv.conf", "var/cache", "var/lib/apt", "var/lib/dpkg"),
    *("usr/lib/*/libLLVM*", "usr/lib/postgresql/*/lib/*llvm*", "usr/lib/*/perl*"),
    *(f"usr/share/{name}" for name in ("doc", "i18n", "info", "locale", "man", "perl*")),
)
_PATH = "/opt/database:/opt/java/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Image:
    """What an image of a database is made of, and what it has in common with the official one.

    `user` is who runs it, by number; `volume` is what it declares as VOLUME.
    """

    name: str
    packages: tuple[str, ...]
    user: int
    volume: str
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "SIGTERM"

    @property
    def reference(self) -> str:
        return f"localvolume.test/{self.name}:1"

    @property
    def directory(self) -> Path:
        return HERE / self.name


IMAGES = {
    image.name: image
    for image in (
        Image(
            name="postgres",
            packages=("postgresql-15",),
            user=999,
            volume="/var/lib/postgresql/data",
            environment={"PATH": f"/usr/lib/postgresql/15/bin:{_PATH}", "PGHOST": "/tmp"},
            # By it PostgreSQL does not wait for its clients to go.
            stop_signal="SIGINT",
        ),
        Image(
            name="kafka",
            packages=(_JAVA,),
            user=1000,
            volume="/var/lib/kafka/data",
        ),
        Image(
            name="cassandra",
            packages=(_JAVA, "hostname", "python3-cassandra"),
            user=999,
            volume="/var/lib/cassandra",
        ),
    )
}


def missing() -> list[str]:
    """What this machine lacks to make them, each with what helps."""
    wanted = {"mmdebstrap": "mmdebstrap", "mvn": "maven", "apt-get": "apt"}
    return [
        f"there is no {program}: install {package}"
        for program, package in wanted.items()
        if shutil.which(program) is None
    ]


def provide(name: str) -> Path:
    """The docker archive of a database, from the cache if it is there; raises BuildFailed."""
    image = IMAGES[name]
    files = [Path(__file__), *sorted(image.directory.iterdir())]
    recipe = "\0".join(f"{file.name}\0{file.read_text()}" for file in files)
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    with turn():
        path = CACHE / f"{name}-{digest}.tar"
        if not path.exists():
            print(f"databases: making the image of {name}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                new = _make(image, Path(directory))
                new.rename(path)
        return used(path)


def _make(image: Image, directory: Path) -> Path:
    root, new = directory / "root", directory / "image.tar"
    mirrors = [re.sub(rf" {SUITE}\b", f" {_DEBIAN}", line) for line in sources()]
    extract([*_TOOLS, *image.packages], _DEBIAN, root, mirrors, architectures.here())
    _tell_versions(root, image.packages)
    for pattern in _UNREAD:
        remove(root, pattern)
    for name in ("dev", "opt", "proc", "run", "sys"):
        (root / name).mkdir(exist_ok=True)
    for java in (root / "usr/lib/jvm").glob("java-17-openjdk-*"):
        (root / "opt/java").symlink_to(f"/{java.relative_to(root)}")
    (root / "tmp").chmod(0o1777)
    of = f"{image.name}:x:{image.user}:"
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/:/bin/sh\n{of}{image.user}::/tmp:/bin/sh\n")
    (root / "etc/group").write_text(f"root:x:0:\n{of}\n")
    pack(root, directory / "root.tar")
    archive.write(
        new,
        image.reference,
        [_Tar(directory / "root.tar"), _ours(image, directory / "jars")],
        command=["/opt/database/start.sh"],
        environment={"PATH": _PATH, "LANG": "C.UTF-8", **image.environment},
        stop_signal=image.stop_signal,
        volumes=[image.volume],
    )
    return new


def _tell_versions(root: Path, packages: tuple[str, ...]) -> None:
    for file in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        found = fields(run(["dpkg-deb", "--field", file]))
        if found["Package"] in packages:
            print(f"databases: {found['Package']} {found['Version']}", file=sys.stderr, flush=True)


def _ours(image: Image, jars: Path) -> archive.Layer:
    """The files of the image's directory, and what its pom.xml names."""
    layer = archive.Layer()
    for file in sorted(image.directory.iterdir()):
        layer.copy(file, f"opt/database/{file.name}")
    pom = image.directory / "pom.xml"
    if pom.exists():
        options = ["--batch-mode", "--quiet", "--strict-checksums", f"--file={pom}"]
        run(["mvn", *options, _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"])
        for jar in sorted(jars.iterdir()):
            layer.copy(jar, f"opt/database/jars/{jar.name}")
    return layer


class _Tar:
    """A layer that is packed already."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tar(self) -> bytes:
        return self._path.read_bytes()
