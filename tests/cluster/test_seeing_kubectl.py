"""What people see with the real kubectl: the plugin, and a volume's story in `describe`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import localvolume
from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.build import provide
from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.host.support_devices import unmount
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane", "kubectl")


class Kubectl:
    """The real one, with the plugin in its PATH."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        # As pip writes a console script.
        plugin = directory / "kubectl-localvolume"
        plugin.write_text(
            f"#!{sys.executable}\nimport sys\n"
            "from localvolume.cli.main import kubectl\nsys.exit(kubectl())\n"
        )
        plugin.chmod(0o755)
        source = os.path.dirname(os.path.dirname(localvolume.__file__))
        self._program = str(provide(["kubectl"])["kubectl"])
        self._environment = {
            **os.environ,
            "PATH": f"{directory}:/usr/bin:/bin",
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(directory),
            "PYTHONPATH": source,
        }

    def __call__(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [self._program, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def ctl(control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    return Kubectl(control_plane, tmp_path)


def test_the_plugin_is_found_and_named_as_people_call_it(
    ctl: Kubectl, objects: Objects, unique: str
) -> None:
    assert "kubectl-localvolume" in ctl("plugin", "list")
    node = f"{unique}-node"
    objects.node(node)
    assert node in ctl("localvolume", "status", "--node", node)
    missing = ctl("localvolume", "why", f"pv/{unique}", status=1)
    assert f"there is no PersistentVolume {unique}" in missing
    assert "usage: kubectl localvolume status" in ctl("localvolume", "status", "--help")
    # An option of kubectl's own is the plugin's, too.
    assert "no-such" in ctl("localvolume", "status", "--context", "no-such", status=3)


def described(ctl: Kubectl, what: str, *reasons: str) -> str:
    """`kubectl describe`, once it tells of all of these."""
    found: str = until(
        lambda: ctl("describe", what), lambda text: all(one in text for one in reasons)
    )
    return found


@pytest.mark.needs("root", "loop", "ext4")
def test_the_story_of_a_prepared_volume(lab: Lab, ctl: Kubectl) -> None:
    cls = lab.add_class()
    where = lab.mount(lab.disk(), cls.path("one"))
    lab.start()
    volume = lab.published(cls, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    text = ctl("describe", f"pv/{name}")
    assert f"default/{claim}" in text
    assert "localvolume.dev/identity" in text
    # Kept busy: what is told while it is cleaned, of the object that is there then.
    unmount(where)
    described(ctl, f"pv/{name}", "VolumeVanished")
    lab.delete_claim(claim)
    text = described(ctl, f"pv/{name}", "VolumeVanished", "VolumeFailedDelete")
    assert "not cleaned, the data stays" in text
    assert "Terminating" in text or "Released" in text


@pytest.mark.needs("root", "loop", "ext4")
def test_the_story_of_a_made_volume(dynamic: DynamicLab, ctl: Kubectl) -> None:
    dynamic.pool(undoPeriod="1h")
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    name = f"pvc/{claim['metadata']['name']}"
    volume = dynamic.made(claim)
    described(ctl, name, "Provisioning ", "ProvisioningSucceeded")
    dynamic.grow(claim, "16Mi")
    described(ctl, name, "Resizing", "VolumeResizeSuccessful", "has 16Mi now")
    dynamic.delete(claim)
    text = described(ctl, f"pv/{volume['metadata']['name']}", "VolumeReleased")
    assert "its claim is gone; it is removed after 1h" in text
    refused = dynamic.claim(cls, size="8Gi")
    described(ctl, f"pvc/{refused['metadata']['name']}", "ProvisioningFailed", "of room left")
