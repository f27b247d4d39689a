"""The client in the kubelet's plugin directory: whole or not at all, and always the present one."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.flexvolume.install import NotInstalled, install

pytestmark = pytest.mark.needs("root")

NAME = "localvolume.dev/flexvolume"


@pytest.fixture
def config(tmp_path: Path) -> FlexVolumeConfig:
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\necho 1\n")
    return FlexVolumeConfig(
        driver="bindmount",
        client=str(client),
        plugin_directory=str(tmp_path / "kubelet" / "exec"),
        socket_on_host="/run/on-host.sock",
        names=(NAME, "example.com/other"),
    )


def files(config: FlexVolumeConfig) -> dict[str, bytes]:
    root = Path(config.plugin_directory)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_every_name_gets_the_client_and_the_sockets_place(config: FlexVolumeConfig) -> None:
    before = os.umask(0o077)
    try:
        changed = install(config)
    finally:
        os.umask(before)
    program = Path(config.client).read_bytes()
    assert files(config) == {
        "example.com~other/.socket": b"/run/on-host.sock\n",
        "example.com~other/other": program,
        "localvolume.dev~flexvolume/.socket": b"/run/on-host.sock\n",
        "localvolume.dev~flexvolume/flexvolume": program,
    }
    assert len(changed) == 4
    placed = Path(config.plugin_directory, "localvolume.dev~flexvolume")
    assert stat.S_IMODE(placed.stat().st_mode) == 0o755
    assert stat.S_IMODE((placed / "flexvolume").stat().st_mode) == 0o755
    assert stat.S_IMODE((placed / ".socket").stat().st_mode) == 0o644
    assert subprocess.check_output([placed / "flexvolume"]) == b"1\n"


def test_what_is_the_same_stays_the_very_file(config: FlexVolumeConfig) -> None:
    install(config)
    placed = Path(config.plugin_directory, "localvolume.dev~flexvolume", "flexvolume")
    before = placed.stat()
    assert install(config) == []
    after = placed.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_an_upgrade_replaces_it_while_the_old_one_runs(config: FlexVolumeConfig) -> None:
    Path(config.client).write_text("#!/bin/sh\necho up\nread line\necho old\n")
    install(config)
    placed = Path(config.plugin_directory, "localvolume.dev~flexvolume", "flexvolume")
    with subprocess.Popen(
        [placed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "up\n"  # its file is open now: it is the old one
        Path(config.client).write_text("#!/bin/sh\necho new, of another length\n")
        assert str(placed) in install(config)
        assert old.communicate("go\n", timeout=120)[0] == "old\n"
    assert subprocess.check_output([placed]) == b"new, of another length\n"


def test_permissions_and_strays_are_mended(config: FlexVolumeConfig, tmp_path: Path) -> None:
    install(config)
    directory = Path(config.plugin_directory, "localvolume.dev~flexvolume")
    directory.chmod(0o700)
    (directory / "flexvolume").chmod(0o644)
    (directory / ".new-0123").write_text("half")
    (directory / ".socket").unlink()
    other = tmp_path / "other"
    other.write_text("somebody's")
    (directory / ".socket").symlink_to(other)
    changed = install(config)
    assert set(changed) == {f"{directory}/.socket", f"{directory}/flexvolume"}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert stat.S_IMODE((directory / "flexvolume").stat().st_mode) == 0o755
    assert sorted(os.listdir(directory)) == [".socket", "flexvolume"]
    assert not (directory / ".socket").is_symlink()
    assert other.read_text() == "somebody's"


def test_nobody_ever_meets_half_of_it(config: FlexVolumeConfig) -> None:
    """elastic's driver.sh copied in place: a kubelet that looked then ran half of a program.

    W-15.
    """
    placed = Path(config.plugin_directory, "localvolume.dev~flexvolume", "flexvolume")
    wanted = {(b"%d" % turn) * (1 << 20) for turn in range(2)}
    client = Path(config.client)
    client.write_bytes(b"0" * (1 << 20))
    install(config)
    seen: set[bytes] = set()
    over = threading.Event()

    def watch() -> None:
        while True:
            seen.add(placed.read_bytes())
            # At least once, however late this thread begins.
            if over.is_set():
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for turn in range(40):
            client.write_bytes((b"%d" % (turn % 2)) * (1 << 20))
            install(config)
    finally:
        over.set()
        watcher.join()
    assert seen <= wanted
    assert seen


@pytest.mark.parametrize("what", ["missing", "empty", "a directory", "too large"])
def test_without_a_client_it_is_said(config: FlexVolumeConfig, what: str) -> None:
    client = Path(config.client)
    client.unlink()
    if what == "empty":
        client.touch()
    elif what == "a directory":
        client.mkdir()
    elif what == "too large":
        with client.open("xb") as file:
            file.truncate((64 << 20) + 1)
    said = "larger than 64 MiB" if what == "too large" else "client"
    with pytest.raises(NotInstalled, match=said):
        install(config)
    assert not Path(config.plugin_directory).exists()


def test_where_none_is_configured_nothing_is_done(tmp_path: Path) -> None:
    config = FlexVolumeConfig(driver="bindmount", plugin_directory=str(tmp_path / "exec"))
    assert install(config) == []
    assert not (tmp_path / "exec").exists()


def test_a_link_in_the_plugin_directory_is_not_followed(
    config: FlexVolumeConfig, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.makedirs(config.plugin_directory)
    Path(config.plugin_directory, "localvolume.dev~flexvolume").symlink_to(elsewhere)
    with pytest.raises(NotInstalled):
        install(config)
    assert list(elsewhere.iterdir()) == []
