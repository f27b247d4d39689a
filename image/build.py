"""buildah, without a daemon: a Containerfile and two trees to one archive."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from image import application, base, bill
from image.running import CACHE, BuildFailed, run, turn

HERE = Path(__file__).parent
ARCHIVE = application.ROOT / "build" / f"{application.NAME}.tar"
#: What lies beside an archive, by its suffix.
BILL, PROVENANCE = ".cdx.json", ".intoto.jsonl"


@dataclass(frozen=True)
class Built:
    """A docker archive, the reference of its image, the digest of the image's description, and the
    bill of what is in it."""

    archive: Path
    reference: str
    digest: str
    bill: Path


@contextlib.contextmanager
def _usual_modes() -> Iterator[None]:
    """Whatever the umask of who builds is, anybody may read what is in the image."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@_usual_modes()
def build(
    archive: Path = ARCHIVE, tree: Path = application.ROOT, *, allow_newest: bool = False
) -> Built:
    """Write the image of `tree` to `archive`; raises BuildFailed. Equal trees give equal bytes.

    The FlexVolume client must be built in it already: `make flexvolume-client`. Of the packages
    that are recorded; `allow_newest`: or of the newest, where the mirror does not have these.
    """
    if os.geteuid() != 0:
        raise BuildFailed("the image's files belong to root: build it as root")
    if not (tree / application.CLIENT).exists():
        raise BuildFailed(f"there is no {application.CLIENT}: make flexvolume-client")
    reference = f"{application.NAME}:{application.version(tree)}"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with turn():
        lowest, packages = base.build(allow_newest=allow_newest), application.requirements(tree)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as directory:
        context = Path(directory, "context")
        context.mkdir()
        os.link(lowest, context / "base.tar")
        application.write(context / "application", tree, packages)
        digest = _commit(context, Path(directory))
        new = archive.with_suffix(".new")
        new.unlink(missing_ok=True)
        _buildah(Path(directory), "push", digest, f"docker-archive:{new}:{reference}")
        said = _bill(lowest, context / "application", tree, digest)
        # Of the archive that was there; who signs writes another.
        archive.with_suffix(PROVENANCE).unlink(missing_ok=True)
        new.rename(archive)
    beside = archive.with_suffix(BILL)
    beside.write_text(said)
    return Built(archive, reference, digest, beside)


def _bill(lowest: Path, laid_over: Path, tree: Path, digest: str) -> str:
    version, client = application.version(tree), tree / application.CLIENT
    go = run(["go", "version", client]).rpartition(": go")[2].strip()
    components = [
        *bill.of_debian(base.described(lowest)),
        *bill.of_python(laid_over / application.PACKAGES, application.NAME),
        *bill.of_go(client.name, version, go),
    ]
    return bill.written(application.NAME, version, digest, components)


def _commit(context: Path, directory: Path) -> str:
    said = directory / "digest"
    _buildah(
        directory,
        *("build", "--isolation=chroot", "--format=oci", "--timestamp=0", "--pull-never"),
        *(f"--iidfile={said}", f"--file={HERE / 'Containerfile'}", str(context)),
    )
    return said.read_text().strip()


def _buildah(directory: Path, *arguments: str) -> None:
    """Its storage is thrown away with `directory`: what is cached, we cache by its inputs."""
    storage = [f"--root={directory / 'storage'}", f"--runroot={directory / 'running'}"]
    run(
        ["buildah", *storage, "--storage-driver=vfs", *arguments],
        environment={"TMPDIR": str(directory)},
    )
