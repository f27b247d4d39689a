"""A mistake in our own code about one volume costs that volume time, and the others nothing."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from localvolume.static import act
from tests.cluster.support_agent import Lab

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_an_error_nobody_thought_of_is_logged_and_tried_again_ever_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.hurry(first_wait=0.4)
    fs = lab.add_class("fs")
    attempts: list[str] = []
    mistaken = True
    publish = act.Acts._publish

    async def mistake(self: act.Acts, step: Any, around: Any) -> None:
        if step.entry.name == "unlucky":
            attempts.append(step.key)
            if mistaken:
                raise KeyError("a mistake of ours")
        await publish(self, step, around)

    monkeypatch.setattr(act.Acts, "_publish", mistake)
    for name in ("lucky", "unlucky"):
        lab.mount(lab.disk(), fs.path(name))
    lab.start()
    lab.published(fs, "lucky")
    lab.until(lambda: len(attempts), lambda count: count >= 2)
    assert lab.logged("unexpected")
    tried, since = len(attempts), time.monotonic()
    lab.mount(lab.disk(), fs.path("later"))
    lab.published(fs, "later")
    # An attempt per look would be dozens by now; with the wait doubling it is a few.
    assert len(attempts) <= tried + 2 + math.log2(1 + (time.monotonic() - since) / 0.4)
    mistaken = False
    lab.published(fs, "unlucky")
