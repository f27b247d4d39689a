"""`localvolume demo` on this machine: what it shows, and that it leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support_demo import DEMO, REST, RESTING, running

MADE = (
    r"-> CSIStorageCapacity: \d\dMi of room for class made on demo-node",
    r"-> the controller leads",
    r"-> claim scratch is Bound to pvc-\w+\.\.\. of 16Mi, \d+ ms after it was created",
    r"-> claim and PersistentVolume say 32Mi \d",
    r"-> pvc-\w+\.\.\. is gone \d+ ms after its claim was deleted, and its directory too",
    r"-> pvc-(\w+)\.\.\. is Released and kept for 1h: .*secret\.txt",
    r"\$ localvolume undo pvc-\w+-",
    r"-> claim diary is Bound to pvc-\w+\.\.\. of 16Mi, \d+ ms after it was created",
    r"-> it is the same volume, with .*secret\.txt as it was written",
    r"Claims had the volumes made for them after at most \d+ ms",
)
ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]")


@pytest.mark.needs("root", "loop", "ext4")
def test_it_shows_the_whole_story_on_real_disks(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        assert run.end() == 0, run.output
    text = run.output
    for expected in (
        r"Disks    an ext4 filesystem, a bind mount, a raw device",
        r"-> ready \d",
        r"local-pv-\w+: an ext4 filesystem, 5\dMi, volumeMode Filesystem, in the API \d+ ms later",
        r"local-pv-\w+: a bind mount, 1\d\dMi, volumeMode Filesystem, in the API \d+ ms later",
        r"local-pv-\w+: a raw device, 48Mi, volumeMode Block, in the API \d+ ms later",
        r"claim notes \(20Mi\) is bound to local-pv-\w+ by the sandbox after",
        r"Event VolumeCleaned: delete-files: .*proved",
        r"Event VolumeCleaned: zero: 48.0 MiB .*proved \(\d+ samples read back\)",
        r"disk-1: lost\+found in it",
        r"device-1: read back in full, 48.0 MiB of zeros",
        r"Event VolumeFailedDelete: not cleaned, the data stays: .* is not a valid mount point",
        r"array-1 still has not-yours.txt",
        *MADE,
        r"make demo HOLD=1",
        r"Everything is removed again\.",
    ):
        assert re.search(expected, text), f"no {expected!r} in:\n{text}"
    assert len(re.findall(r"is a new object \(UID \w+ is now \w+\)", text)) == 3
    assert "\x1b" not in text, "no colours and no cursor movements where there is no terminal"


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for that of a socket, as pytest's do not."""
    made = Path(tempfile.mkdtemp(prefix="lv-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.mark.needs("root", "loop", "ext4", "btrfs")
def test_a_volume_is_had_again_from_its_snapshot(short: Path) -> None:
    with running(short, "--hold") as run:
        run.until(r"Ctrl-C removes everything")
        status = _status(run.output)
        run.signal(signal.SIGINT)
        assert run.end() == 0, run.output
    assert (status["summary"]["agents"]["ready"], status["problems"]) == (1, [])
    assert (status["controller"]["pods"], status["controller"]["ready"]) == (1, 1)
    for expected in (
        r"localvolume agent --csi --config",
        r"-> CSIStorageCapacity: \d+Mi of room for class copied on demo-node",
        r"The sandbox .* stands in for the cluster's snapshot-controller",
        r"-> claim journal is Bound to pvc-\w+\.\.\. of 16Mi",
        r"-> VolumeSnapshot before is ready .* later: cut by the agent",
        r"-> an accident: nothing is in the volume",
        r"-> claim journal-again is Bound to pvc-\w+\.\.\. of 16Mi",
        r"-> secret\.txt is in it, as it was written",
        r"localvolume status\n",
        r"localvolume why pvc/diary -n demo\n",
        r"localvolume ui\n",
        r"The sandbox has a pod for each",
        r"kubectl\S* -n demo get volumesnapshots",
        r"Everything is removed again\.",
    ):
        assert re.search(expected, run.output), f"no {expected!r} in:\n{run.output}"
    assert "no snapshots" not in run.output


def _status(output: str) -> dict[str, Any]:
    """What `localvolume status` says of the demo that is held up, as its hints have it asked."""
    found = re.search(r"export KUBECONFIG=(\S+)", output)
    assert found, output
    words = (sys.executable, "-m", "localvolume", "status", "-o", "json", "--kubeconfig", found[1])
    status: dict[str, Any] = json.loads(subprocess.check_output(words))
    return status


@pytest.mark.needs("root", "loop", "ext4", "btrfs")
@pytest.mark.parametrize("moment", ["VolumeSnapshot before is ready", "claim journal-again is"])
def test_killed_in_the_midst_of_a_restore_it_leaves_nothing(short: Path, moment: str) -> None:
    with running(short, argv=(sys.executable, "-c", RESTING, moment)) as run:
        run.until(moment)
        run.signal(signal.SIGKILL)
        assert run.end() == -signal.SIGKILL


@pytest.mark.needs("root", "loop", "ext4", "btrfs")
def test_a_directory_whose_path_is_too_long_for_a_socket_is_said_to_be(tmp_path: Path) -> None:
    where = tmp_path / ("long" * 10)
    where.mkdir()
    with running(where, argv=(sys.executable, "-c", RESTING, "localvolume agent")) as run:
        run.until(r"localvolume agent --config")
        run.signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
    assert "no snapshots: the path of the temporary directory is too long" in run.output


@pytest.mark.needs("root", "loop", "ext4")
def test_a_shell_of_root_whose_path_has_no_sbin_is_shown_real_disks(tmp_path: Path) -> None:
    """As after `su`; the agent asks wipefs, which many distributions have in sbin alone."""
    path = [where for where in os.environ["PATH"].split(":") if not where.endswith("sbin")]
    argv = (sys.executable, "-c", RESTING, "a raw device, 48Mi")
    with running(tmp_path, argv=argv, env={"PATH": ":".join(path)}) as run:
        run.until(r"local-pv-\w+: a raw device, 48Mi")
        run.signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM


@pytest.mark.needs("userns", "setpriv")
def test_without_privileges_it_shows_the_same_on_tmpfs(tmp_path: Path) -> None:
    argv: tuple[str, ...] = DEMO
    if os.geteuid() == 0:
        # As root in a container is: uid 0, and yet nobody who may mount.
        argv = ("setpriv", "--bounding-set", "-sys_admin", *DEMO)
    with running(tmp_path, argv=argv) as run:
        assert run.end() == 0, run.output
    assert "user namespace" in run.output
    assert "no ext4 and no raw device: loop devices and disk filesystems need root" in run.output
    assert "no snapshots: they need a filesystem that shares data" in run.output
    assert re.search(r"local-pv-\w+: a tmpfs, 64Mi", run.output)
    assert re.search(r"local-pv-\w+: a bind mount, 128Mi", run.output)
    for expected in MADE:
        assert re.search(expected, run.output), f"no {expected!r} in:\n{run.output}"
    assert "array-1 still has not-yours.txt" in run.output
    assert len(re.findall(r"is a new object", run.output)) == 2


PATCHED = f"""{REST}
from localvolume_lab.demo import kernel, machine
from localvolume_lab.demo.show import Options, show

def refuse(*_):
    raise OSError(1, "Operation not permitted")

{{patch}}
sys.exit(show(Options()))
"""

LACKING = """
there = machine.Machine._program
machine.Machine._program = staticmethod(lambda name: None if name == "{}" else there(name))
"""

_NO_BTRFS = """
mount = kernel.mount
kernel.mount = lambda source, target, kind="", **more: (
    refuse() if kind == "btrfs" else mount(source, target, kind, **more)
)
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (LACKING.format("mkfs.ext4"), "there is no mkfs.ext4 (package e2fsprogs)"),
        pytest.param(
            LACKING.format("wipefs"),
            "there is no wipefs (package util-linux)",
            marks=pytest.mark.needs("mkfs.ext4"),
        ),
        pytest.param(
            "kernel.attach_loop = refuse",
            "gives no loop device with ext4",
            marks=pytest.mark.needs("mkfs.ext4", "wipefs"),
        ),
    ],
)
def test_a_machine_that_lacks_what_ext4_needs_is_shown_on_tmpfs(
    tmp_path: Path, patch: str, reason: str
) -> None:
    script = PATCHED.format(patch=patch)
    with running(tmp_path, argv=(sys.executable, "-c", script, "a tmpfs, 64Mi")) as run:
        run.until(r"a tmpfs, 64Mi")
        run.signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
    assert reason in run.output


@pytest.mark.needs("root", "loop", "ext4")
@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (LACKING.format("mkfs.btrfs"), "there is no mkfs.btrfs (package btrfs-progs)"),
        pytest.param(
            _NO_BTRFS,
            "this kernel or container mounts no btrfs",
            marks=pytest.mark.needs("mkfs.btrfs"),
        ),
    ],
)
def test_a_machine_without_btrfs_shows_all_but_snapshots(
    short: Path, patch: str, reason: str
) -> None:
    script = PATCHED.format(patch=patch)
    with running(short, argv=(sys.executable, "-c", script, "a raw device, 48Mi")) as run:
        run.until(r"local-pv-\w+: a raw device, 48Mi")
        run.signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
    assert f"no snapshots: {reason}" in run.output


def test_where_nothing_can_be_mounted_it_says_what_would_help(tmp_path: Path) -> None:
    script = PATCHED.format(
        patch="kernel.unshare = lambda _: (_ for _ in ()).throw(PermissionError(1, 'no'))"
    )
    with running(tmp_path, argv=(sys.executable, "-c", script, "never")) as run:
        assert run.end() == 2
    assert "Run it as root (sudo), or allow user namespaces" in run.output


@pytest.mark.needs("userns")
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (r"localvolume demo: local disks", signal.SIGHUP),
        (r"1  The cluster gets", signal.SIGKILL),
        (r"localvolume agent --config", signal.SIGTERM),
        (r"a bind mount, \d+Mi", signal.SIGINT),
        (r"kubectl delete pvc notes", signal.SIGKILL),
        (r"localvolume controller", signal.SIGKILL),
        (r"localvolume undo", signal.SIGTERM),
        (r"localvolume undo", signal.SIGKILL),
    ],
)
def test_interrupted_at_any_moment_it_leaves_nothing(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    with running(tmp_path, argv=(sys.executable, "-c", RESTING, moment)) as run:
        run.until(moment)
        run.signal(number)
        # Impatience changes nothing: what is being removed is removed.
        run.signal(number)
        assert run.end() == (-number if number == signal.SIGKILL else 128 + number), run.output
    assert "Done in" not in run.output
    assert "Left behind" not in run.output
    assert ("Everything is removed again." in run.output) == (number != signal.SIGKILL)


@pytest.mark.needs("userns")
def test_a_terminal_has_a_table_that_stays_current_and_ctrl_c(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", RESTING, "is bound to", "--pace", "0.2")
    with running(tmp_path, argv=argv, columns=120) as run:
        run.until(r"last event")
        run.until(r"local-pv-\w+ +disk-1 +files +\d+Mi +\x1b\[36mBound *\x1b\[0m +notes")
        run.type("\x03")
        assert run.end() == 130, run.output
    assert ANSI_COLOUR.search(run.output)
    assert "Interrupted (SIGINT)" in run.output


@pytest.mark.needs("userns")
def test_a_narrow_terminal_has_no_table_and_no_color_means_none(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", RESTING, "is bound to", "--pace", "0.2")
    with running(tmp_path, argv=argv, columns=60, env={"NO_COLOR": "1"}) as run:
        run.until(r"is bound to\s+local-pv")
        run.type("\x03")
        assert run.end() == 130, run.output
    assert "last event" not in run.output
    assert not ANSI_COLOUR.search(run.output)
    # The terminal shows Ctrl-C where it comes, in front of a whole line at times.
    output = run.output.replace("^C", "")
    lines = [re.sub(r"\x1b\[[0-9;?]*\w", "", line) for line in output.splitlines()]
    told = [line for line in lines if "$DEMO  " not in line and "/" not in line]
    assert max(len(line.rstrip()) for line in told) <= 60


@pytest.mark.parametrize(
    "words",
    [("--real", "--kubeconfig", "x"), ("--pace", "fast"), ("--pace", "-1"), ("--pace", "nan")],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    with running(tmp_path, *words) as run:
        assert run.end() == 2
    assert "usage:" in run.output
