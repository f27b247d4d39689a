"""The image for all processors, as one archive, and a bill of each."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from image.application import NAME
from image.architectures import MACHINES, here
from image.build import build
from image.running import run
from release.layouts import INDEX, Layout
from release.order import Order, says_version


def make(tree: Path, into: Path, order: Order) -> str:
    """Write archive and bills; returns the digest by which a registry will know the image.

    Raises BuildFailed.
    """
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        layouts = {}
        for architecture in MACHINES:
            # Nothing else tells of which sources a client is that lies there.
            chosen = [] if architecture == here() else [f"ARCH={architecture}"]
            run(["make", "--always-make", "-C", tree, "flexvolume-client", *chosen])
            if architecture == here():
                says_version(tree, order.version)
            layout = layouts[architecture] = Path(scratch, architecture)
            archive = Path(scratch, f"{architecture}.tar")
            built = build(archive, tree, architecture=architecture, layout=layout)
            shutil.copyfile(built.bill, into / order.named(f"-image-{architecture}.cdx.json"))
            built.archive.unlink()
        archive = into / order.named("-image.oci.tar")
        return join(layouts, Path(scratch, "layout"), archive, order)


def join(layouts: Mapping[str, Path], scratch: Path, archive: Path, order: Order) -> str:
    """Write one archive of the images for several architectures; returns its digest."""
    layout = Layout(scratch)
    described = [
        {**layout.take(one), "platform": {"architecture": architecture, "os": "linux"}}
        for architecture, one in layouts.items()
    ]
    top = layout.add_document(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": described,
            "annotations": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.version": order.version,
                "org.opencontainers.image.revision": order.commit,
                "org.opencontainers.image.source": order.source,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        INDEX,
    )
    layout.pack(top, order.version, archive)
    return str(top["digest"])
