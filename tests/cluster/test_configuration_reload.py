"""The configuration changes under a running agent: at once, wholly, or not at all."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.faults.support_proxy import Order, proxy_for

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

VALID = "localvolume_config_valid"


def is_ready(lab: Lab) -> None:
    """Wait until it is: a look fails while others keep mounting, and is made again."""
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)


def test_a_valid_edit_is_in_force_without_a_restart(lab: Lab) -> None:
    """Upstream registers /ready twice and dies; and it remembers keys that were removed."""
    lab.settings |= {"labelsForPV": {"team": "storage"}, "useNodeNameOnly": True}
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    agent = lab.start()
    first = lab.published(fs, "one")
    assert first["metadata"]["labels"]["team"] == "storage"

    added = lab.add_class("added")
    lab.mount(lab.disk(), added.path("one"))
    del lab.settings["labelsForPV"]
    del lab.settings["useNodeNameOnly"]
    lab.configure()
    volume = lab.published(added, "one")
    assert "team" not in volume["metadata"]["labels"]
    by = volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"]
    assert by.startswith(f"local-volume-provisioner-{lab.node}-")
    is_ready(lab)

    # A class that is edited, and edited again, and one that is removed.
    for pattern in ("red-*", "blue-*"):
        lab.settings["storageClassMap"][added.name]["namePattern"] = pattern
        lab.configure()
        name = pattern.replace("*", "1")
        lab.mount(lab.disk(), added.path(name))
        lab.published(added, name)
    lab.mount(lab.disk(), added.path("red-2"))
    del lab.settings["storageClassMap"][fs.name]
    # Whoever settles makes an entry in the first one's directory: it must be watched still.
    lab.classes = {"added": added, "fs": fs}
    lab.configure()
    lab.until(lambda: sum(lab.held(fs).values()), lambda held: held == 1)
    lab.mount(lab.disk(), fs.path("two"))
    lab.settle()
    assert lab.volumes_at(added, "red-2") == []
    assert lab.volumes_at(fs, "two") == []
    # What it offered before is left as it is.
    assert lab.stays(first)["metadata"]["labels"]["team"] == "storage"
    assert lab.agent is agent


class Burst:
    """Three volumes that are published one by one; the first one's object is held on its way."""

    def __init__(self, lab: Lab) -> None:
        lab.hurry(publishers=1)
        lab.settings |= {"labelsForPV": {"team": "old"}}
        self.lab = lab
        self.fs = lab.add_class("fs")
        self.names = ["one", "two", "three"]
        for name in self.names:
            lab.mount(lab.disk(), self.fs.path(name))
        self.first = Order("hold", ("post",), times=1)

    @contextmanager
    def begun(self, directory: Path) -> Iterator[None]:
        with proxy_for(self.lab.plane, directory) as proxy:
            self.lab.kubeconfig = proxy.kubeconfig
            proxy.orders.append(self.first)
            self.lab.start(wait=False)
            self.lab.until(lambda: self.first.met, bool)
            yield
            self.lab.stop()

    def edit(self) -> None:
        """Returns once the new configuration is in force."""
        lab = self.lab
        lab.settings["labelsForPV"] = {"team": "new"}
        before = self._reloads()
        lab.configure()
        lab.until(self._reloads, lambda count: count > before)

    def _reloads(self) -> float:
        return self.lab.metric("localvolume_config_reloads_total", result="valid") or 0

    def teams(self) -> list[str]:
        """What the volumes are labelled with, once all are published."""
        published = [self.lab.published(self.fs, name) for name in self.names]
        return sorted(volume["metadata"]["labels"]["team"] for volume in published)


def test_what_waits_to_be_published_is_published_by_the_new_configuration(
    lab: Lab, tmp_path: Path
) -> None:
    """A burst of volumes waits its turn; what was planned for them before the edit is void."""
    burst = Burst(lab)
    with burst.begun(tmp_path):
        burst.edit()
        burst.first.release()
        assert burst.teams() == ["new", "new", "old"]


@pytest.mark.needs("wipefs")
def test_a_look_that_an_edit_overtakes_plans_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan would be of the old configuration, and would wait its turn beside the new one."""
    slow, asked = tmp_path / "slow", tmp_path / "asked"
    wipefs = tmp_path / "wipefs"
    wipefs.write_text(
        f"#!/bin/sh\ntouch {asked}\nwhile test -e {slow}; do sleep 0.1; done\n"
        f'exec {shutil.which("wipefs")} "$@"\n'
    )
    wipefs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    burst = Burst(lab)
    raw = lab.add_class("raw", volumeMode="Block")
    with burst.begun(tmp_path):
        slow.touch()
        lab.link(lab.raw_disk(4 << 20), raw.path("disk"))
        lab.until(asked.exists, bool)
        burst.edit()
        looks = lab.looks()
        slow.unlink()
        lab.until(lab.looks, lambda count: count > looks)
        burst.first.release()
        assert burst.teams() == ["new", "new", "old"]
        assert lab.published(raw, "disk")["metadata"]["labels"]["team"] == "new"


def test_an_invalid_edit_keeps_the_last_good_one(lab: Lab) -> None:
    """Upstream's pods all die of it."""
    fs = lab.add_class("fs")
    lab.start()
    assert lab.metric(VALID) == 1
    for turn, (key, text, reason) in enumerate(
        (
            ("storageClassMap", "{not: [yaml", "storageClassMap"),
            (
                "storageClassMap",
                json.dumps({fs.name: {"hostDir": "/x"}}),
                "needs hostDir and mountDir",
            ),
            ("setPVOwnerRef", "perhaps", "must be true or false"),
            ("surprise", "1", "surprise"),
        )
    ):
        lab.write_config(key, text)
        lab.until(lambda: lab.metric(VALID), lambda value: value == 0)
        lab.event(lab.node, "ConfigurationInvalid", reason)
        assert lab.logged(f"invalid configuration: {key}")
        # Served as before, meanwhile.
        name = f"made-{turn}"
        lab.mount(lab.disk(), fs.path(name))
        lab.published(fs, name)
        assert lab.http("/healthz")[0] == 200
        is_ready(lab)
        lab.configure()
        lab.until(lambda: lab.metric(VALID), lambda value: value == 1)
    assert lab.event(lab.node, "ConfigurationInvalid")["type"] == "Warning"
    assert lab.event(lab.node, "ConfigurationChanged")["type"] == "Normal"
    assert (lab.metric("localvolume_config_reloads_total", result="invalid") or 0) >= 4


def test_an_agent_that_starts_without_a_valid_configuration_waits(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    good = dict(lab.settings)
    lab.settings = {"storageClassMap": "nonsense"}
    lab.start(wait=False)
    lab.until(lambda: lab.metric(VALID), lambda value: value == 0)
    lab.event(lab.node, "ConfigurationInvalid", "nothing is served until it is corrected")
    assert lab.http("/ready")[0] == 500
    assert lab.http("/healthz")[0] == 200
    lab.settings = good
    lab.configure()
    lab.published(fs, "one")
    is_ready(lab)


def test_the_files_of_a_config_map_as_the_kubelet_changes_them(lab: Lab) -> None:
    """Links to links in a directory that is exchanged in one step."""
    fs = lab.add_class("fs")
    for name in ("one", "two"):
        lab.mount(lab.disk(), fs.path(name))

    def project(version: str, pattern: str) -> None:
        data = lab.config_directory / f"..{version}"
        data.mkdir()
        lab.settings["storageClassMap"][fs.name]["namePattern"] = pattern
        (data / "storageClassMap").write_text(json.dumps(lab.settings["storageClassMap"]))
        fresh = lab.config_directory / "..data_tmp"
        fresh.symlink_to(data.name)
        fresh.rename(lab.config_directory / "..data")

    project("first", "one")
    (lab.config_directory / "storageClassMap").symlink_to("..data/storageClassMap")
    lab.start(write=False)
    lab.published(fs, "one")
    lab.settle()
    assert lab.volumes_at(fs, "two") == []
    project("second", "one,two")
    lab.published(fs, "two")
