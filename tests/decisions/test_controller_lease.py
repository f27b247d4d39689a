"""What keeps a replica from leading is said for as long as it does, and no longer."""

from __future__ import annotations

from localvolume.controller.controller import LeaseRefusals
from localvolume.kube.errors import NotThere, TellTheAdministrator, TryAgainLater

FORBIDDEN = TellTheAdministrator("no right", status=403)


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_refusal_counts_until_the_same_request_succeeds() -> None:
    refusals = LeaseRefusals(60.0, Time())
    refusals.answered("create", FORBIDDEN)
    refusals.answered("get", None)
    # The server is away, or has no such Lease: neither says that we may create one.
    refusals.answered("create", TryAgainLater("away"))
    refusals.answered("create", NotThere("no such namespace", status=404))
    assert refusals.now() == "no right (403)"
    refusals.answered("create", None)
    assert refusals.now() == ""


def test_a_refusal_counts_no_more_once_nobody_asks_again() -> None:
    """The first look at the Lease came before the rights for it. The watch has brought it since,
    and another replica renews it: this one looks no more, for as long as both go on."""
    time = Time()
    refusals = LeaseRefusals(60.0, time)
    refusals.answered("get", FORBIDDEN)
    refusals.answered("list", FORBIDDEN)
    time.now += 30.0
    refusals.answered("list", None)
    refusals.answered("watch", None)
    assert refusals.now() == "no right (403)"
    time.now += 31.0
    assert refusals.now() == ""


def test_a_refusal_that_is_repeated_counts_on() -> None:
    time = Time()
    refusals = LeaseRefusals(60.0, time)
    for _ in range(10):
        refusals.answered("patch", FORBIDDEN)
        time.now += 30.0
        assert refusals.now() == "no right (403)"
