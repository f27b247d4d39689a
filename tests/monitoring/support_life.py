"""What happens on four nodes while Prometheus looks: volumes come, are used, cleaned and lost."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_agent import Class, Lab, lab_for
from tests.cluster.support_controller import Ground
from tests.cluster.support_csi import CsiLab, csi_lab_for
from tests.cluster.support_dynamic import DynamicLab, dynamic_lab_for
from tests.cluster.support_flex import FlexLab, flex_lab_for
from tests.cluster.support_frozen import OVERWRITE, half_cleaned
from tests.cluster.support_loops import release
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import kinds_of_snapshots
from tests.host.support_devices import command, mounted
from tests.host.support_failing import count_an_error
from tests.monitoring.support_prometheus import Prometheus
from tests.suite.api import VOLUMES
from tests.suite.units import MIB

AGENT = "local-volume-provisioner"
CONTROLLER = "local-volume-provisioner-controller"
CLUSTER = "east"


@dataclass
class Lives:
    """One node with prepared disks, one with pools, one with FlexVolume, one with the CSI driver;
    and the controller."""

    static: Lab
    dynamic: DynamicLab
    flex: FlexLab
    csi: CsiLab
    ground: Ground
    files: Class
    devices: Class
    overwritten: Class
    class_name: str
    slow_class: str
    shared_class: str
    doomed: str

    def targets(self) -> dict[int, dict[str, str]]:
        """The labels that our ServiceMonitors give, by the port to be scraped."""
        shared = {"namespace": "local-volume-provisioner"}
        found = {
            lab.port: {**shared, "job": AGENT, "node": lab.node}
            for lab in (self.static, self.dynamic, self.flex, self.csi)
        }
        # As a Prometheus of several clusters has it; the others are as those of one cluster are.
        found[self.static.port]["cluster"] = CLUSTER
        return found | {self.ground.port: {**shared, "job": CONTROLLER, "node": "control"}}

    def begin(self) -> None:
        self.static.start()
        self.dynamic.start()
        self.flex.serve()
        self.csi.serve_here()
        self.ground.start(self.ground.cls, self.doomed)

    # --- one round of everything, in which each counter counts ------------------------------------

    def round(self, number: int) -> None:
        self._clean_volumes(number)
        self._make_volumes()
        self._mount_flexvolumes(number)
        self._call_the_driver()
        self._lose_nodes(number)

    def _clean_volumes(self, number: int) -> None:
        lab = self.static
        lab.mount(lab.disk(), self.files.path(f"disk-{number}"))
        lab.link(lab.raw_disk(), self.devices.path(f"raw-{number}"))
        for cls, name in ((self.files, f"disk-{number}"), (self.devices, f"raw-{number}")):
            volume = lab.published(cls, name)
            lab.delete_claim(lab.bound(volume))
            lab.published(cls, name, unlike=volume["metadata"]["uid"])

    def _make_volumes(self) -> None:
        lab = self.dynamic
        lab.made(lab.claim(self.class_name, size="16Mi"))
        goes = lab.claim(self.class_name, size="16Mi")
        volume = lab.made(goes)
        lab.delete(goes)
        lab.gone(volume)
        never = lab.claim(self.class_name, size="9Ti")
        lab.claim_event(never, "ProvisioningFailed")
        lab.delete(never)

    def _mount_flexvolumes(self, number: int) -> None:
        lab = self.flex
        volume = lab.volume(f"v{number}")
        assert lab.mount(volume).ok
        assert lab.unmount(volume).ok
        elsewhere = lab.volume(f"w{number}", affinity="another-host")
        assert not lab.mount(elsewhere).ok

    def _call_the_driver(self) -> None:
        assert self.csi.call("NodeGetInfo").node_id

    def _lose_nodes(self, number: int) -> None:
        """One volume goes with its node, and one, which a tenant used, is kept."""
        ground = self.ground
        node = ground.node(f"lost-{number}")
        unused = ground.volume(node)
        kept = ground.released(ground.volume(node, policy="Retain"))
        ground.remove_node(node)
        ground.gone(unused)
        ground.marked(kept)

    # --- what takes its time ---------------------------------------------------------------------

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While it is entered, a device is half cleaned; and files of a volume are being deleted,
        which goes on."""
        self._delete_files()
        with half_cleaned(self.static, self.overwritten):
            yield

    def _delete_files(self) -> None:
        lab = self.dynamic
        claim = lab.claim(self.slow_class)
        volume = lab.made(claim)
        for number in range(1000):
            (lab.path_of(volume) / f"file-{number}").touch()
        lab.delete(claim)
        about = {"persistentvolume": volume["metadata"]["name"]}
        lab.until(lambda: lab.metric("localvolume_purge_files", **about) or 0, bool)

    # --- trouble ---------------------------------------------------------------------------------

    def trouble(self) -> None:
        """Things go wrong on each node, and with the API server; most of it stays so."""
        self._hold_a_volume()
        self._refuse_to_delete()
        self._refuse_to_create()
        self._fail_a_filesystem()
        self._escape_a_limit()
        (self.files.directory / "stray").write_text("no volume")
        self.flex.write_config("flexvolume", "{")

    def _hold_a_volume(self) -> None:
        """One cannot be removed while a pod has it mounted."""
        lab = self.dynamic
        claim = lab.claim(self.class_name, size="16Mi")
        volume = lab.made(claim)
        with mounted(str(lab.path_of(volume))):
            lab.delete(claim)
            lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "in use")
        lab.gone(volume)

    def _refuse_to_delete(self) -> None:
        """The controller may not delete the volume of a lost node; later it may."""
        lab, ground = self.static, self.ground
        node = ground.node("lost-and-kept")
        volume = ground.volume(node, cls=self.doomed)
        policy = lab.forbid("DELETE")
        path = f"{VOLUMES}/{volume['metadata']['name']}"
        ground.until(lambda: lab.refuses("DELETE", path), bool)
        ground.remove_node(node)
        failed = "local_volume_node_cleanup_persistentvolume_delete_failed_total"
        ground.until(lambda: ground.metric(failed, phase="Available") or 0, bool)
        ground.plane.request("DELETE", policy)
        ground.gone(volume)

    def _refuse_to_create(self) -> None:
        lab = self.static
        policy = lab.forbid_creation()
        lab.mount(lab.disk(), self.files.path("refused"))
        failed = "local_volume_provisioner_apiserver_requests_failed_total"
        lab.until(lambda: lab.metric(failed, method="create") or 0, bool)
        lab.plane.request("DELETE", policy)
        lab.published(self.files, "refused")

    def _fail_a_filesystem(self) -> None:
        lab = self.static
        disk = lab.disk()
        lab.mount(disk, self.files.path("failing"), options="errors=remount-ro")
        lab.bound(lab.published(self.files, "failing"))
        count_an_error(disk)

    def _escape_a_limit(self) -> None:
        lab = self.dynamic
        volume = lab.made(lab.claim(self.shared_class, size="16Mi"))
        command("btrfs", "subvolume", "create", lab.path_of(volume) / "inner")
        lab.settle()
        lab.event(volume["metadata"]["name"], "VolumeLimitEscaped")


@contextlib.contextmanager
def lives_for(plane: ControlPlane, directory: Path) -> Iterator[Lives]:
    """All of it, configured and not begun; it goes in the end."""
    objects = Objects(plane)
    names = [f"t{secrets.token_hex(4)}" for _ in range(5)]
    places = [directory / name for name in names]
    for place in places:
        place.mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(kinds_of_snapshots(plane))
        stack.callback(objects.clean)
        static = stack.enter_context(lab_for(objects, names[0], places[0]))
        dynamic = stack.enter_context(dynamic_lab_for(objects, names[1], places[1]))
        flex = stack.enter_context(flex_lab_for(objects, names[2], places[2]))
        csi = stack.enter_context(csi_lab_for(objects, names[4], places[4]))
        csi.csi_pool()
        ground = stack.enter_context(Ground(plane, names[3]))
        fails = static.directory / "fails"
        # The first cleaning of each device fails.
        once = f'n="{fails}-$(basename "$LOCAL_PV_BLKDEVICE")"'
        script = f'{once}; [ -e "$n" ] || {{ touch "$n"; exit 1; }}'
        yield Lives(
            static=static,
            dynamic=dynamic,
            flex=flex,
            csi=csi,
            ground=ground,
            files=static.add_class("fs"),
            devices=static.add_class(
                "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
            ),
            overwritten=static.add_class(
                "overwritten", volumeMode="Block", blockCleanerCommand=OVERWRITE
            ),
            class_name=_pool_of_images(dynamic),
            slow_class=_pool_that_is_slow(dynamic),
            shared_class=_pool_of_btrfs(dynamic),
            doomed=f"{names[0]}-doomed",
        )


def _pool_of_images(lab: DynamicLab) -> str:
    # Images tell what they hold, bytes and inodes, without quota in the kernel.
    limits = {"largest": "16Mi", "total": "32Mi"}
    pool = lab.pool("fast", size=256 * MIB, backend="image", inline=limits)
    lab.stack.callback(release, pool.directory)
    return lab.storage_class(parameters={"pool": pool.name})


def _pool_that_is_slow(lab: DynamicLab) -> str:
    """It deletes so few files in a second that Prometheus sees it."""
    pool = lab.pool("slow", purgeFilesPerSecond=2)
    return lab.storage_class("slow", parameters={"pool": pool.name})


def _pool_of_btrfs(lab: DynamicLab) -> str:
    """Its tenants can make what no limit counts."""
    pool = lab.pool("shared", fs_type="btrfs", backend="btrfs")
    return lab.storage_class("shared", parameters={"pool": pool.name})


def scraped(prometheus: Prometheus) -> None:
    """Wait until each target has been scraped anew: what was counted before is in Prometheus."""
    began = float(prometheus.ask("query", query="time()")["result"][1])
    prometheus.until(f"count(timestamp(up) > {began + 1} and up == 1) == count(up)")
