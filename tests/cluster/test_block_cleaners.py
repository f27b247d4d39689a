"""How released devices are cleaned: upstream's scripts by name, our methods, any command."""

import json
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.host.support_devices import command

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

PATTERN = b"the former tenant's secret "

# The class's command, what its receipt says, whether the secret is gone.
METHODS: dict[str, tuple[list[str] | None, str, bool]] = {
    "default": (None, "zero: 4.0 MiB", True),
    "quick": (["/scripts/quick_reset.sh"], "reset-signatures: 4.0 MiB", False),
    "dd": (["/scripts/dd_zero.sh", "2"], "zero x2: 4.0 MiB", True),
    "shred": (["/scripts/shred.sh", "1"], "overwrite x1: 4.0 MiB", True),
    "blkdiscard": (["/scripts/blkdiscard.sh"], "discard: 4.0 MiB", True),
    "ours": (["localvolume", "overwrite", "1"], "overwrite x1: 4.0 MiB", True),
}


def test_every_method_by_its_name(lab: Lab) -> None:
    devices, volumes = {}, {}
    for kind, (words, _, _) in METHODS.items():
        keys = {} if words is None else {"blockCleanerCommand": words}
        cls = lab.add_class(kind, volumeMode="Block", **keys)  # type: ignore[arg-type]
        devices[kind] = lab.raw_disk(4 << 20)
        lab.link(devices[kind], cls.path("raw"))
    lab.start()
    for kind in METHODS:
        volumes[kind] = lab.published(lab.classes[kind], "raw")
    claims = {kind: lab.bound(volume) for kind, volume in volumes.items()}
    for kind, device in devices.items():
        secret = PATTERN * ((4 << 20) // len(PATTERN))
        Path(device.path).write_bytes(secret)
        command("mkswap", device.path)
        lab.delete_claim(claims[kind])
    for kind, (_, summary, gone) in METHODS.items():
        old = volumes[kind]["metadata"]
        lab.published(lab.classes[kind], "raw", unlike=old["uid"])
        message = lab.event(old["name"], "VolumeCleaned", summary)["message"]
        data = Path(devices[kind].path).read_bytes()
        assert (kind, any(data)) == (kind, not gone)
        assert (kind, PATTERN in data) == (kind, not gone)
        assert ("proved" in message, "signatures only" in message) == (gone, not gone), message


def test_a_device_that_was_offered_as_a_filesystem(lab: Lab) -> None:
    """The kubelet makes a filesystem on it; the next one finds none."""
    fs = lab.add_class("fs", fsType="ext4")
    device = lab.raw_disk(64 << 20)
    lab.link(device, fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    device.format("ext4")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    lab.event(volume["metadata"]["name"], "VolumeCleaned", "signatures only")


def test_the_administrators_command(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's environment; a line longer than any buffer; failure, and then success."""
    monkeypatch.setenv("INHERITED", "from the agent")
    seen, allowed = lab.directory / "seen", lab.directory / "allowed"
    script = (
        'import json, os, sys; open(sys.argv[1], "a").write(json.dumps(dict(os.environ)) + "\\n");'
        'sys.stdout.write("x" * 3_000_000); sys.stdout.flush();'
        'device = open(os.environ["LOCAL_PV_BLKDEVICE"], "r+b");'
        "device.write(bytes(1 << 20)); device.close();"
        'print("last words"); sys.exit(0 if os.path.exists(sys.argv[2]) else 3)'
    )
    words = ["/usr/bin/env", "python3", "-c", script, str(seen), str(allowed)]
    block = lab.add_class("block", volumeMode="Block", blockCleanerCommand=words)
    device = lab.raw_disk(1 << 20)
    lab.link(device, block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    Path(device.path).write_bytes(b"secret" * 1000)
    lab.delete_claim(claim)
    lab.event(name, "VolumeDelete", "/usr/bin/env python3")
    failed = lab.event(name, "VolumeFailedDelete", "ended with 3")
    assert "last words" in failed["message"]
    lab.until(lambda: seen.read_text().count("\n"), lambda runs: runs >= 2)
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    allowed.touch()
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    lab.event(name, "VolumeCleaned", "done")
    for line in seen.read_text().splitlines():
        environment = json.loads(line)
        # The path as the agent sees it, not as the host does.
        assert environment["LOCAL_PV_BLKDEVICE"] == str(block.path("raw"))
        assert environment["INHERITED"] == "from the agent"


def test_a_command_that_never_ends(lab: Lab) -> None:
    """It is ended with everything it started, reported, and the disk is not offered."""
    marker = f"600.{int(lab.unique[1:], 16)}"
    block = lab.add_class(
        "block",
        volumeMode="Block",
        blockCleanerCommand=["/bin/sh", "-c", f"sleep {marker} & sleep {marker}; true"],
        cleaningTimeout="1s",
    )
    lab.link(lab.raw_disk(1 << 20), block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "cleaning failed")
    # Corrected while the volume waits; even this may take longer than a second.
    corrected = lab.settings["storageClassMap"][block.name]
    corrected["blockCleanerCommand"] = ["/bin/true"]
    del corrected["cleaningTimeout"]
    lab.configure()
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    # What is killed takes a moment to be gone.
    lab.until(lambda: running(marker), lambda found: not found)


def running(word: str) -> list[str]:
    """The command lines of processes that contain a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


def test_two_volumes_of_one_disk_are_cleaned_one_after_the_other(lab: Lab) -> None:
    """Each writes when it begins and ends; different disks do not wait for each other."""
    log = lab.directory / "log"
    script = f'echo begin >> "{log}"; sleep 0.3; echo end >> "{log}"'
    block = lab.add_class(
        "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
    )
    disk = lab.raw_disk(32 << 20)
    parts = disk.partition("8MiB", "8MiB")
    lab.stack.callback(disk.forget_partitions)
    for number, part in enumerate(parts):
        lab.unlink_later(block.path(f"part-{number}")).symlink_to(part)
    lab.start()
    volumes = [lab.published(block, f"part-{number}") for number in range(len(parts))]
    for claim in [lab.bound(volume) for volume in volumes]:
        lab.delete_claim(claim)
    for number, volume in enumerate(volumes):
        lab.published(block, f"part-{number}", unlike=volume["metadata"]["uid"])
    assert log.read_text().split() == ["begin", "end"] * 2
