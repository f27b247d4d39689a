"""The Node service, killed right before each call of the system: the next call completes it."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.csi.staging import act
from localvolume.csi.staging.act import Asked, Paths
from localvolume.host.mount import binding
from localvolume.host.syscalls import syscall
from tests.host.support_csi import SHARED, Disks, Kubelet, kubelet_at
from tests.host.support_devices import formatted
from tests.host.support_mounts import MS_BIND, mount

pytestmark = pytest.mark.needs("root", "loop", "ext4")

_MOST_STEPS = 60
ASKED = Asked(block=False, mode=SHARED, flags=("noexec",))


@pytest.fixture(params=["directory", "ext4", "raw"])
def kubelet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubelet]:
    """With one volume of that kind, `v`."""
    disks = Disks()
    with formatted("ext4") as device, kubelet_at(tmp_path / "kubelet", disks) as made:
        if request.param == "directory":
            (tmp_path / "pool").mkdir()
            disks.add("v", tmp_path / "pool")
        else:
            disks.add("v", device, request.param)
        yield made
        made.clear()


def asked_of(kubelet: Kubelet) -> Asked:
    if kubelet.disks.known["v"].volume_mode == "Block":
        return Asked(block=True, mode=SHARED)
    return ASKED


def acts(kubelet: Kubelet) -> dict[str, Callable[[], None]]:
    """What the four calls do, in the process that calls it."""
    staging, target = kubelet.staging("v"), kubelet.target("v")
    paths, asked = Paths(str(kubelet.root)), asked_of(kubelet)

    def using(do: Callable[..., None], *args: Any) -> Callable[[], None]:
        return lambda: kubelet.disks.use_here("v", lambda one: do(one, asked, *args, paths))

    return {
        "stage": using(act.stage, staging),
        "publish": using(act.publish, staging, target),
        "unpublish": lambda: act.unpublish(target, paths),
        "unstage": lambda: act.unstage(staging, paths),
    }


def killed_at(step: int, executor: Callable[[], None]) -> bool:
    """Do it in a child that is killed by -9 right before its n-th change; False: it had fewer."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(step)
            executor()
        except BaseException:  # noqa: BLE001 - nothing may go on in a child
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed instead"
    return False


def _die_at(step: int) -> None:
    """Have this process killed at the n-th change that it is about to make."""
    left = step

    def look(frame: Any, event: str, called: Any) -> None:
        nonlocal left
        code = frame.f_code
        if event == "c_call":
            ours = "/localvolume/" in code.co_filename
            is_change = ours and called.__name__ in ("mkdir", "open", "rmdir", "unlink")
        else:
            # What goes to the C library through ctypes is no call of a built-in.
            is_change = event == "call" and code in (syscall.__code__, binding.unmount.__code__)
        if is_change:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)


def entries(kubelet: Kubelet) -> list[str]:
    """All names below the kubelet's directory that are not in a volume."""
    found = []
    mounted = {one.mount_point for one in kubelet.mounts()}
    for above, directories, files in os.walk(kubelet.root):
        directories[:] = [one for one in directories if f"{above}/{one}" not in mounted]
        found += [f"{above}/{one}" for one in [*directories, *files]]
    return sorted(found)


@pytest.mark.parametrize("killed", ["stage", "publish", "unpublish", "unstage"])
def test_a_call_that_was_killed_is_completed_by_the_next(kubelet: Kubelet, killed: str) -> None:
    kubelet.publish_request("v")  # makes the directories that are the kubelet's to make
    done = acts(kubelet)
    order = list(done)
    for name in order[: order.index(killed)]:
        done[name]()
    before = kubelet.shown(), entries(kubelet)
    done[killed]()
    after = kubelet.shown(), entries(kubelet)
    for step in range(_MOST_STEPS):
        # Back to where it began, by what undoes the call, or by the calls before it.
        _back(done, killed)
        assert (kubelet.shown(), entries(kubelet)) == before
        was_killed = killed_at(step, done[killed])
        done[killed]()
        assert (kubelet.shown(), entries(kubelet)) == after
        if not was_killed:
            break
    else:
        raise AssertionError(f"{killed} is killed after {_MOST_STEPS} steps")
    assert step > 0


def _back(done: dict[str, Callable[[], None]], killed: str) -> None:
    match killed:
        case "stage":
            done["unstage"]()
        case "publish":
            done["unpublish"]()
        case "unpublish":
            done["publish"]()
        case _:
            done["stage"]()


def test_a_call_that_was_killed_is_taken_back_by_the_opposite(kubelet: Kubelet) -> None:
    kubelet.publish_request("v")
    done = acts(kubelet)
    for call, opposite in (("stage", "unstage"), ("publish", "unpublish")):
        if call == "publish":
            done["stage"]()
        before = kubelet.shown(), entries(kubelet)
        for step in range(_MOST_STEPS):
            was_killed = killed_at(step, done[call])
            done[opposite]()
            assert (kubelet.shown(), entries(kubelet)) == before
            if not was_killed:
                break
        else:
            raise AssertionError(f"{call} is killed after {_MOST_STEPS} steps")


@pytest.mark.parametrize("kubelet", ["directory", "ext4"], indirect=True)
def test_what_is_mounted_twice_is_taken_away_twice(kubelet: Kubelet) -> None:
    kubelet.publish_request("v")
    done = acts(kubelet)
    done["stage"]()
    done["publish"]()
    for path in (kubelet.staging("v"), kubelet.target("v")):
        mount(path, path, flags=MS_BIND)
    assert len(kubelet.mounts()) == 4
    done["stage"]()
    done["publish"]()
    assert len(kubelet.mounts()) == 4
    done["unpublish"]()
    done["unstage"]()
    assert kubelet.mounts() == []
