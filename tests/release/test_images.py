"""Images for several processors as one archive, which a registry has under the digest told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from image.application import NAME, ROOT, version
from image.architectures import MACHINES
from release.images import join
from tests.release.support_release import example, pushed, registry

pytestmark = pytest.mark.needs("root", "buildah", "skopeo", "docker-registry")


def small(directory: Path, architecture: str) -> Path:
    """The layout of an image with one file in it."""
    (directory / "context").mkdir(parents=True)
    (directory / "context" / "file").write_text(architecture)
    (directory / "context" / "Containerfile").write_text("FROM scratch\nCOPY file /\n")
    storage = [f"--root={directory / 'storage'}", f"--runroot={directory / 'running'}"]
    buildah = ["buildah", *storage, "--storage-driver=vfs"]
    build = ["build", f"--platform=linux/{architecture}", "--timestamp=0", "--isolation=chroot"]
    for words in (
        [*build, "--tag=it", str(directory / "context")],
        ["push", "it", f"oci:{directory / 'layout'}:1"],
    ):
        subprocess.run([*buildah, *words], check=True, capture_output=True, timeout=300)
    return directory / "layout"


def test_a_registry_has_the_image_of_each_processor(tmp_path: Path) -> None:
    order = example(version(ROOT))
    layouts = {name: small(tmp_path / name, name) for name in MACHINES}
    archive = tmp_path / "it.oci.tar"
    digest = join(layouts, tmp_path / "joined", archive, order)
    again = tmp_path / "again.oci.tar"
    assert join(layouts, tmp_path / "joined again", again, order) == digest
    assert again.read_bytes() == archive.read_bytes()
    with registry(tmp_path) as address:
        assert pushed(archive, f"{address}/{NAME}:1") == digest
        for name in MACHINES:
            inspect = ["skopeo", "inspect", "--tls-verify=false", f"--override-arch={name}"]
            done = subprocess.run(
                [*inspect, f"docker://{address}/{NAME}@{digest}"],
                check=True,
                capture_output=True,
                timeout=120,
            )
            assert json.loads(done.stdout)["Architecture"] == name
