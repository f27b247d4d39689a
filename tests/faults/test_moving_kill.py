"""kill -9 of the agent while it takes over a volume whose object was made anew for the driver."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_csi import CsiLab
from tests.cluster.support_moving import MOVED_FROM, Moving, register
from tests.faults.support_lives import Point, Zygote
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

_HURRIED = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}


@pytest.fixture
def zygote(csi: CsiLab, tmp_path: Path) -> Iterator[Zygote]:
    csi.csi_pool(backend="image", size=256 * MIB)
    csi.configure()
    where = str(csi.config_directory)
    arguments = ["--csi", "--config", where, "--listen-address", "127.0.0.1:0"]
    environment = {
        "MY_NODE_NAME": csi.node,
        "KUBECONFIG": str(csi.plane.kubeconfig),
        "KUBELET_DIR": str(csi.kubelet),
        "RECORDS_DIR": str(csi.records),
    }
    with Zygote(tmp_path, arguments, environment, _HURRIED) as made:
        yield made


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["record-offered", "patch"])
def test_the_next_agent_goes_on(csi: CsiLab, zygote: Zygote, kind: str, when: str) -> None:
    cls = csi.storage_class()
    register(csi)
    zygote.start(hurried=True)
    claim = csi.claim(cls, size="32Mi")
    moving = Moving(csi, claim, csi.made(claim))
    zygote.kill()
    assert moving.steps(5)[-1] == "create"
    zygote.start(Point(kind, 1, when), hurried=True)
    status = until(
        lambda: zygote.died(0),
        lambda found: found is not None,
        said=lambda: zygote.log.read_text()[-3000:],
    )
    assert status == -signal.SIGKILL
    # Until the next one has done the rest, or all is done, nobody else sees to the volume.
    found = moving.now()
    assert found is not None
    assert (MOVED_FROM in found["metadata"]["annotations"]) == ((kind, when) != ("patch", "after"))
    zygote.start(hurried=True)
    moving.moved()
    until(csi.serves, said=lambda: zygote.log.read_text()[-3000:])
    place = moving.caller.use(moving.name)
    (place / "rows").write_text("precious")
    moving.caller.leave(moving.name)
    assert moving.content() == "precious"
    record = csi.made_pools[0].directory / ".localvolume/records" / f"{moving.name}.json"
    assert record.read_text().count(CSI) == 1
    assert moving.command("--yes").returncode == 0
    assert moving.kept() == []
