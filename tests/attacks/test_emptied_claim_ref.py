"""Somebody empties claimRef of a volume that was made for a claim, and deletes it: letting it go
would leave what the claim wrote without anybody who removes it."""

from __future__ import annotations

import pytest

from localvolume.cli.remove_finalizers import reason_to_keep
from tests.decisions.support_dynamic import adopted, reserved, volume


@pytest.mark.parametrize("phase", ["Available", "Released", "Failed"])
@pytest.mark.parametrize("emptied", [volume, reserved, adopted])
def test_its_finalizer_is_kept(phase: str, emptied: object) -> None:
    assert callable(emptied)
    fields = {"phase": phase, "deleted": True}
    if emptied is not reserved:
        fields["claim_uid"] = None
    reason = reason_to_keep(emptied(**fields))
    assert reason is not None
    assert "let the agent run until it is gone" in reason


def test_what_is_not_being_deleted_may_go_on_without_us() -> None:
    assert reason_to_keep(volume(phase="Available", claim_uid=None)) is None
    assert reason_to_keep(adopted()) is None
