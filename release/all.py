"""All files of a release, one after another, and only all of them."""

import shutil
import tempfile
from pathlib import Path

from image import provenance
from image.application import NAME
from image.running import BuildFailed
from release import chart, images, manifests, plugin, statement, wheels
from release.order import Order, notes


def make(tree: Path, output: Path, order: Order) -> None:
    """Write the release to the directory `output`, in place of a release that is there.

    Raises BuildFailed, and leaves what is there as it is.
    """
    if output.exists() and any(output.iterdir()) and not (output / statement.SUMS).exists():
        raise BuildFailed(f"{output} has files that are of no release: name another directory")
    (tree / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=tree / "build") as scratch:
        into = Path(scratch, "dist")
        into.mkdir()
        (into / "NOTES.md").write_text(notes((tree / "CHANGELOG.md").read_text(), order.version))
        wheels.make(tree, into, order)
        plugin.make(tree, into, order, wheels.wheel(into, order))
        image = images.make(tree, into, order)
        artifact = chart.make(tree, into, order, image)
        manifests.make(into, order, image)
        pushed = {order.image: image, f"{order.charts}/{NAME}": artifact}
        statement.make(tree, into, order, pushed)
        if (now := provenance.commit(tree)) != order.commit:
            raise BuildFailed(f"the tree was of {order.commit}, and now it is of {now}")
        if output.exists():
            shutil.rmtree(output)
        shutil.move(into, output)
