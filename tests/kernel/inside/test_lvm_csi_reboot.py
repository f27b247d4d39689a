"""A node restarts under pods with CSI volumes in a group: all of them come back."""

from __future__ import annotations

import pytest

from tests.cluster.support_csi import mounted_below
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_inline import inline_pod
from tests.host.support_devices import command
from tests.host.support_mounts import umount
from tests.suite.units import MIB

from .support_lvm_csi import GROUP, POOL, LvmCsiLab, csi

__all__ = ["csi"]

SIZE = 64 * MIB
LIMITS = {"largest": "64Mi", "total": "128Mi"}
TEXT = "written before"


def restart(csi: LvmCsiLab) -> None:
    """What a restart leaves of it: no agent, no mounts, no active volumes; files and objects."""
    csi.stop()
    for point in reversed(mounted_below(csi.kubelet)):
        umount(point)
    command("vgchange", "--quiet", "--activate", "n", GROUP)


@pytest.mark.parametrize("thin", [True, False], ids=["thin", "thick"])
def test_all_is_mounted_again_with_what_was_in_it(csi: LvmCsiLab, thin: bool) -> None:
    if thin:
        csi.lvm.create_pool(GROUP, "pool", POOL)
    csi.group(GROUP, inline=LIMITS, **({"thinPool": "pool"} if thin else {}))
    csi.serve_here()
    caller = Caller(csi.kubelet)
    handle = caller.create("volume-1", SIZE)
    stays, goes = (
        inline_pod(csi.objects, caller, csi.node, name, size="64Mi") for name in ("stays", "goes")
    )
    for place in (caller.use(handle), stays.publish(), goes.publish()):
        (place / "file").write_text(TEXT)
    assert _volumes(csi) == {handle, stays.handle, goes.handle}
    restart(csi)
    goes.delete()
    csi.serve_here()
    # That of the pod that went meanwhile goes without any call; the others wait for the kubelet's.
    csi.until(lambda: _volumes(csi), lambda left: left == {handle, stays.handle})
    assert not mounted_below(csi.kubelet)
    for place in (caller.use(handle), stays.publish()):
        assert (place / "file").read_text() == TEXT
    stays.unpublish()
    caller.leave(handle)
    caller.delete(handle)
    csi.until(lambda: _volumes(csi), lambda left: not left)


def _volumes(csi: LvmCsiLab) -> set[str]:
    return {one.name for one in csi.lvm.volumes(GROUP)} - {"pool"}
