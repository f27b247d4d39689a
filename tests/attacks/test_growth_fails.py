"""A growth that fails for minutes: nothing else about its volume waits for it, and it is seen."""

from __future__ import annotations

import time

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab, Volume
from tests.cluster.support_seeing import Seeing
from tests.host.support_devices import immutable

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def bound(lab: DynamicLab) -> tuple[str, Claim, Volume]:
    """A claim of a class that has its volume, and nothing is under way."""
    cls = lab.storage_class()
    lab.start()
    claim = lab.claim(cls)
    volume = lab.made(claim)
    lab.claim_event(claim, "ProvisioningSucceeded")
    # Its volume is said to be bound before it is itself, and until then it is said to wait.
    lab.until(
        lambda: lab.read_claim(claim),
        lambda found: found and found["status"]["phase"] == "Bound",
    )
    return cls, claim, volume


def test_a_failed_growth_delays_no_removal(dynamic: DynamicLab) -> None:
    dynamic.hurry_dynamic(first_wait=300.0, longest_wait=300.0)
    pool = dynamic.pool()
    _, claim, volume = bound(dynamic)
    with immutable(pool.directory / ".localvolume" / "records"):
        dynamic.grow(claim, "16Mi")
        dynamic.claim_event(claim, "VolumeResizeFailed")
    began = time.monotonic()
    dynamic.delete(claim)
    dynamic.gone(volume)
    dynamic.until(pool.inside, lambda left: left == [])
    # Half of it at the least, had the growth's wait counted.
    assert time.monotonic() - began < 150.0


def test_a_growth_that_fails_is_counted_and_shown(
    dynamic: DynamicLab, capsys: pytest.CaptureFixture[str]
) -> None:
    seeing = Seeing(dynamic.plane, capsys)
    dynamic.hurry_dynamic(first_wait=0.2, longest_wait=2.0)
    pool = dynamic.pool()
    cls, claim, volume = bound(dynamic)

    def failed() -> float:
        return dynamic.metric("localvolume_grow_failed_total", **{"class": cls}) or 0

    about = f"pvc/{claim['metadata']['name']} -n default"

    def shown() -> list[str]:
        problems = seeing.ask("status", "-o", "json").json["problems"]
        return [one["reason"] for one in problems if one["about"] == about]

    assert (failed(), shown()) == (0, [])
    with immutable(pool.directory / ".localvolume" / "records"):
        dynamic.grow(claim, "16Mi")
        dynamic.until(failed, lambda count: count >= 3)
        (text,) = dynamic.until(shown, bool)
        name = volume["metadata"]["name"]
        assert text.startswith(f"it does not grow: volume {name} cannot grow to 16Mi")
    dynamic.until(shown, lambda texts: texts == [])


def test_a_growth_for_which_there_is_no_room_is_counted(dynamic: DynamicLab) -> None:
    dynamic.pool()
    cls, claim, _ = bound(dynamic)
    dynamic.grow(claim, "100Gi")
    name = "localvolume_grow_failed_total"
    dynamic.until(lambda: dynamic.metric(name, **{"class": cls}) or 0, lambda count: count >= 1)
