"""buildah, without a daemon: a Containerfile and two trees to one archive."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from image import application, base, bill, files
from image.architectures import here
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
    archive: Path = ARCHIVE,
    tree: Path = application.ROOT,
    *,
    allow_newest: bool = False,
    architecture: str | None = None,
    layout: Path | None = None,
) -> Built:
    """Write the image of `tree` to `archive`; raises BuildFailed. Equal trees give equal bytes.

    The FlexVolume client must be built in it already: `make flexvolume-client`. Of the packages
    that are recorded; `allow_newest`: or of the newest, where the mirror does not have these.
    `architecture` is this machine's where it is not given. The image is written to the directory
    `layout` as well, as OCI lays images out.
    """
    of = architecture or here()
    if os.geteuid() != 0:
        raise BuildFailed("the image's files belong to root: build it as root")
    client = application.client(tree, of)
    if not client.exists():
        where = "" if of == here() else f" ARCH={of}"
        raise BuildFailed(f"there is no {client.relative_to(tree)}: make flexvolume-client{where}")
    reference = f"{application.NAME}:{application.version(tree)}"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with turn():
        lowest = base.build(allow_newest=allow_newest, architecture=of)
        compiler = lowest if of == here() else base.build(allow_newest=allow_newest)
        packages = application.requirements(tree, of)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as directory:
        context = Path(directory, "context")
        context.mkdir()
        os.link(lowest, context / "base.tar")
        os.link(compiler, context / "compiler.tar")
        application.write(context / "application", tree, packages, of)
        digest = _commit(context, Path(directory), of)
        new = archive.with_suffix(".new")
        new.unlink(missing_ok=True)
        _buildah(Path(directory), "push", digest, f"docker-archive:{new}:{reference}")
        if layout is not None:
            _buildah(Path(directory), "push", digest, f"oci:{layout}:{application.version(tree)}")
        said = _bill(files.of_archive(new), lowest, context / "application", client, digest)
        # Of the archive that was there; who signs writes another.
        archive.with_suffix(PROVENANCE).unlink(missing_ok=True)
        new.rename(archive)
    beside = archive.with_suffix(BILL)
    beside.write_text(said)
    return Built(archive, reference, digest, beside)


def _bill(there: list[files.File], lowest: Path, laid_over: Path, client: Path, digest: str) -> str:
    """The bill of the files that are `there`, each below what it comes from."""
    packages = laid_over / application.PACKAGES
    debian = bill.of_debian(base.described(lowest))
    python = bill.of_python(packages, application.NAME)
    (ours,) = (one for one in python.values() if one["name"] == application.NAME)
    version = ours["version"]
    go = run(["go", "version", client]).rpartition(": go")[2].strip()
    program, library = bill.of_go(client.name, version, go)
    own = bill.of_build(application.NAME, version)
    by_name = {one["name"]: one["bom-ref"] for one in debian if "purl" in one}
    place = f"/{application.PACKAGES}"
    origins = files.Origins(
        listed={
            **{path: by_name[package] for path, package in base.owners(lowest).items()},
            **{
                path: python[described]["bom-ref"]
                for path, described in files.recorded(packages, application.PACKAGES).items()
            },
        },
        below={
            f"{place}/localvolume": ours["bom-ref"],
            f"{place}/{application.information_of(version)}": ours["bom-ref"],
            "/usr/local/bin": ours["bom-ref"],
            f"/usr/local/bin/{client.name}": program["bom-ref"],
        },
        build=own["bom-ref"],
    )
    components = [*debian, *python.values(), program, library, own]
    found = files.by_component(there, origins)
    return bill.written(application.NAME, version, digest, bill.with_files(components, found))


def _commit(context: Path, directory: Path, architecture: str) -> str:
    said = directory / "digest"
    _buildah(
        directory,
        *("build", "--isolation=chroot", "--format=oci", "--timestamp=0", "--pull-never"),
        *(f"--platform=linux/{architecture}", f"--iidfile={said}"),
        *(f"--file={HERE / 'Containerfile'}", str(context)),
    )
    return said.read_text().strip()


def _buildah(directory: Path, *arguments: str) -> None:
    """Its storage is thrown away with `directory`: what is cached, we cache by its inputs."""
    storage = [f"--root={directory / 'storage'}", f"--runroot={directory / 'running'}"]
    run(
        ["buildah", *storage, "--storage-driver=vfs", *arguments],
        environment={"TMPDIR": str(directory)},
    )
