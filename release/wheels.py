"""The distributions of Python, product and laboratory, and a bill of the product's."""

import csv
import io
import re
import sys
import zipfile
from base64 import urlsafe_b64decode
from pathlib import Path

from image import bill
from image.application import NAME, information_of, of_the_image
from image.files import File
from image.running import BuildFailed, run
from release.order import Order

_PINNED = re.compile(r"(?m)^([A-Za-z0-9._-]+)==(\S+) \\$")


def wheel(into: Path, order: Order) -> Path:
    """Where the product's wheel is."""
    return into / f"{NAME.replace('-', '_')}-{order.version}-py3-none-any.whl"


def make(tree: Path, into: Path, order: Order) -> None:
    """Write wheels, the product's source and the bill of its wheel; raises BuildFailed."""
    of_commit = {"SOURCE_DATE_EPOCH": str(order.epoch)}
    builds = ["env", "-C"]
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(into)]
    run([*builds, str(tree), *hatch, "-t", "sdist", "-t", "wheel"], environment=of_commit)
    run([*builds, str(tree / "lab"), *hatch, "-t", "wheel"], environment=of_commit)
    base = NAME.replace("-", "_")
    wanted = {f"{base}-{order.version}.tar.gz", wheel(into, order).name}
    wanted.add(f"{base}_lab-{order.version}-py3-none-any.whl")
    there = {path.name for path in into.iterdir() if path.name.startswith(f"{base}")}
    if there != wanted:
        raise BuildFailed(f"the tree is not of one version: hatch made {', '.join(sorted(there))}")
    locked = (tree / "requirements" / "runtime.txt").read_text()
    beside = into / f"{wheel(into, order).name}.cdx.json"
    beside.write_text(_bill(wheel(into, order), order.version, locked))


def _bill(built: Path, version: str, locked: str) -> str:
    """What a wheel has in it, and what it was tested with: the pinned packages it requires."""
    ours = bill.of_ours(NAME, version)
    required = [
        bill.of_index(name, number) for name, number in _PINNED.findall(of_the_image(locked))
    ]
    components = bill.with_files([ours, *required], {ours["bom-ref"]: contents(built, version)})
    return bill.document({"type": "library", "name": built.name, "version": version}, components)


def contents(built: Path, version: str) -> list[File]:
    """The files in a wheel, as its RECORD lists them; its own line has no digest."""
    found = []
    with zipfile.ZipFile(built) as archive:
        record = archive.read(f"{information_of(version)}/RECORD").decode()
    for path, digest, _ in csv.reader(io.StringIO(record)):
        _, _, encoded = digest.partition("sha256=")
        found.append(File(path, urlsafe_b64decode(f"{encoded}=" if encoded else "").hex()))
    return sorted(found)
