"""csi-sanity, the CSI authors' own suite, against an agent whose pool is a volume group."""

from __future__ import annotations

import pytest

from tests.cluster.support_csi import mounted_below, sanity
from tests.cluster.test_csi_sanity import CASES, SKIPPED, named
from tests.suite.units import MIB

from .support_lvm_csi import GROUP, LvmCsiLab, csi

__all__ = ["csi"]

SIZE = 64 * MIB
SECONDS = 2400
"""The guest is many times slower than the machine."""


# Raw thin volumes are left out: for them the agent does nothing that it does not do for these.
@pytest.mark.parametrize(
    ("thin", "access", "reserve"),
    [
        pytest.param(True, "mount", "", id="thin"),
        pytest.param(False, "mount", "", id="thick"),
        pytest.param(False, "mount", "50%", id="thick-reserve"),
        pytest.param(False, "block", "", id="thick-block"),
    ],
)
def test_every_case_passes_that_is_not_left_out_with_a_reason(
    csi: LvmCsiLab, thin: bool, access: str, reserve: str
) -> None:
    csi.fill_node(thin)
    # Thick volumes share no blocks.
    copies = {} if thin else {"fullCopies": "allowed"}
    found = sanity(
        csi,
        copies,
        access=access,
        size=SIZE,
        grown=2 * SIZE,
        leave_out=(),
        seconds=SECONDS,
        snapshots={"snapshotReserve": reserve} if reserve else copies,
    )
    assert not found.failed, (found.failed_first, csi.log()[-25:])
    expected = named(SKIPPED)
    assert set(found.skipped) == expected
    assert len(found.passed) == CASES - len(expected)
    # It removes what it made, and so nothing of it is left here.
    assert mounted_below(csi.kubelet) == []
    kept = ["pool"] if thin else []
    csi.until(lambda: [one.name for one in csi.lvm.volumes(GROUP)], lambda left: left == kept)
