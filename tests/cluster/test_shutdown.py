"""The agent ends when told, also in the midst of cleaning, and the next one carries on."""

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_frozen import frozen
from tests.host.support_devices import loop_device
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_told_to_stop_with_nothing_to_do(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    for number in (signal.SIGTERM, signal.SIGINT):
        agent = lab.start_process()
        volume = lab.published(fs, "one")
        agent.process.send_signal(number)
        assert agent.process.wait(60) == 0
        assert "stopped" in agent.log.read_text()
        assert "Traceback" not in agent.log.read_text()
        lab.agent = None
    assert lab.volume(volume["metadata"]["name"]) is not None


@pytest.mark.parametrize(
    "how",
    [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.needs("setpriv"))],
)
def test_stopped_in_the_midst_of_a_cleaning(lab: Lab, how: signal.Signals) -> None:
    """The cleaner ends with us; the volume is not offered before a whole cleaning is over."""
    pids, go = lab.directory / "pids", lab.directory / "go"
    script = f'echo $$ >> "{pids}"; while [ ! -e "{go}" ]; do sleep 0.05; done; cat /dev/null'
    block = lab.add_class(
        "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
    )
    device = lab.raw_disk(4 << 20)
    lab.link(device, block.path("raw"))
    agent = lab.start_process()
    volume = lab.published(block, "raw")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    lab.delete_claim(claim)
    lab.until(lambda: pids.exists() and pids.read_text().endswith("\n"), bool)
    agent.process.send_signal(how)
    assert agent.process.wait(60) == (0 if how is signal.SIGTERM else -how)
    lab.agent = None
    first = int(pids.read_text())
    lab.until(lambda: alive(first), lambda is_alive: not is_alive)
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert "deletionTimestamp" in found["metadata"]

    lab.start_process()
    lab.until(lambda: len(pids.read_text().split()), lambda runs: runs == 2)
    assert len(lab.volumes()) == 1
    go.touch()
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert len(lab.volumes()) == 1
    assert len(pids.read_text().split()) == 2


def test_told_to_stop_while_it_writes_zeros(lab: Lab) -> None:
    """Between two steps, however large the disk."""
    block = lab.add_class(
        "block", volumeMode="Block", blockCleanerCommand=["/scripts/shred.sh", "100"]
    )
    ground = lab.mount(lab.disk(size=128 * MIB), lab.directory / "stalls")
    device = lab.stack.enter_context(loop_device(64 * MIB, backing=ground / "disk"))
    lab.link(device, block.path("raw"))
    agent = lab.start_process()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    # However late we are to tell it: its disk stalls, so it is not done before, and it is stopped
    # until both is so, that it is told and that its disk goes on.
    with frozen(ground):
        lab.delete_claim(claim)
        lab.until(lambda: lab.logged("cleaning with overwrite"), bool)
        agent.process.send_signal(signal.SIGSTOP)
        agent.process.terminate()
    agent.process.send_signal(signal.SIGCONT)
    assert agent.process.wait(60) == 0
    assert "cleaning stopped" in agent.log.read_text()
    lab.agent = None
    lab.settings["storageClassMap"][block.name]["blockCleanerCommand"] = ["/scripts/dd_zero.sh"]
    lab.start_process()
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
