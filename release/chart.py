"""The chart, which names the released image by its digest, as an archive and as OCI's artifact."""

import json
import re
import shutil
import tempfile
from pathlib import Path

import yaml

from image.application import NAME
from image.running import BuildFailed
from release.archives import files_of, tar_gz
from release.layouts import MANIFEST, Layout
from release.order import Order
from tests.chart.support_helm import Refused, helm

_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def make(tree: Path, into: Path, order: Order, image: str) -> str:
    """Write both of the chart whose image has the digest `image`; returns the artifact's digest.

    Raises BuildFailed.
    """
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        copy = Path(scratch, NAME)
        shutil.copytree(tree / "charts" / NAME, copy)
        values = copy / "values.yaml"
        values.write_text(of_release(values.read_text(), order, image))
        about = copy / "Chart.yaml"
        about.write_text(about.read_text() + _annotations(order, image))
        try:
            helm("package", copy, "--destination", Path(scratch))
        except Refused as error:
            raise BuildFailed(f"helm does not take the chart: {error}") from error
        # helm writes down the time at which it packs each file.
        packed = tar_gz(files_of(Path(scratch, order.named(".tgz")).read_bytes()), order.epoch)
        (into / order.named("-chart.tgz")).write_bytes(packed)
        described = yaml.safe_load(about.read_text())
        if order.artifacthub:
            known = f"repositoryID: {order.artifacthub}\n"
            (into / "artifacthub-repo.yml").write_text(known)
        layout = Layout(Path(scratch, "layout"))
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": layout.add(json.dumps(described, sort_keys=True).encode(), _CONFIG),
            "layers": [layout.add(packed, _CONTENT)],
            "annotations": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.version": order.version,
                "org.opencontainers.image.description": described["description"],
                "org.opencontainers.image.revision": order.commit,
                "org.opencontainers.image.source": order.source,
            },
        }
        top = layout.add_document(manifest, MANIFEST)
        layout.pack(top, order.version, into / order.named("-chart.oci.tar"))
    return str(top["digest"])


def of_release(values: str, order: Order, image: str) -> str:
    """The chart's values with the released image in place of one that no registry has."""
    for key, value in (("image", f"{order.image}:{order.version}"), ("imageDigest", image)):
        values, times = re.subn(rf"(?m)^{key}:.*$", f"{key}: {value}", values)
        if times != 1:
            raise BuildFailed(f"values.yaml of the chart has {times} lines of `{key}`, not one")
    return values


def _annotations(order: Order, image: str) -> str:
    """What only a release knows of what Artifact Hub shows; Chart.yaml ends with annotations."""
    images = f"- name: {NAME}\n  image: {order.image}:{order.version}@{image}\n"
    more = {"artifacthub.io/images": images}
    text = yaml.safe_dump(more, default_style="|")
    return "".join(f"  {line}\n" for line in text.splitlines())
