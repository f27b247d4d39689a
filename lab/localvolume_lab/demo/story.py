"""The story: volumes appear, are claimed, written, released, cleaned, offered anew; and a guard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from localvolume.cleaning.receipt import human_size
from localvolume.kube.client import Client
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import path_of, phase_of
from localvolume_lab.demo.cluster import Names, create_surroundings
from localvolume_lab.demo.copies import Copies
from localvolume_lab.demo.data import contents, write_text
from localvolume_lab.demo.deeds import Deeds, capacity, milliseconds, took
from localvolume_lab.demo.machine import Machine
from localvolume_lab.demo.madevolumes import MadeVolumes
from localvolume_lab.demo.narrator import Narrator, Row
from localvolume_lab.demo.product import Product
from localvolume_lab.demo.witness import PATIENCE_SECONDS, NotSeen, Witness

# A claim gets the smallest volume that is large enough: the large one only fits the array.
_SMALL, _LARGE = "20Mi", "80Mi"


class Story:
    """One performance. `tell` raises NotSeen or ApiError where something does not come to pass."""

    def __init__(
        self,
        narrator: Narrator,
        machine: Machine,
        client: Client,
        names: Names,
        agent: Product,
        controller: Product | None,
        witness: Witness,
        *,
        directory: str,
        kubeconfig: str,
        binder: str,
        copies: bool,
    ) -> None:
        """`binder`: who binds claims in this cluster, in words. `copies`: whether snapshots are
        shown."""
        self._narrator = narrator
        self._machine = machine
        self._client = client
        self._names = names
        self._agent = agent
        self._witness = witness
        self._config = f"{directory}/config"
        self._kubeconfig = kubeconfig
        self._deeds = Deeds(narrator, client, names, witness, binder)
        self._made = MadeVolumes(
            narrator,
            machine,
            client,
            names,
            witness,
            controller,
            config=self._config,
            kubeconfig=kubeconfig,
        )
        self._copies = (
            Copies(narrator, machine, client, names, witness, self._made, config=self._config)
            if copies
            else None
        )
        self._appeared: list[float] = []

    async def tell(self) -> None:
        """All scenes, one after the other."""
        await self._surroundings()
        await self._agent_starts()
        await self._volumes_appear()
        await self._claims_bind()
        await self._claims_go()
        await self._a_guard_holds()
        await self._made.made_and_gone()
        await self._made.undone()
        if self._copies is not None:
            await self._copies.had_again()
        self._summary()

    # --- scenes --------------------------------------------------------------------------------

    async def _surroundings(self) -> None:
        say, names, raw = self._narrator.say, self._names, self._has_raw()
        self._narrator.scene("The cluster gets a Node and StorageClasses")
        await create_surroundings(self._client, names, raw=raw)
        classes = f"{names.files} (directories)" + (f" and {names.raw} (devices)" if raw else "")
        say(f"Node {names.node}; StorageClass {classes}, reclaim policy Delete")
        say(
            "They bind at once (Immediate), as there are no pods here to wait for; with pods, "
            "WaitForFirstConsumer lets the scheduler choose the node first."
        )
        await self._narrator.rest()

    async def _agent_starts(self) -> None:
        narrator = self._narrator
        narrator.scene("The agent starts, configured as the upstream provisioner is")
        text = self._configuration()
        os.mkdir(self._config)
        write_text(f"{self._config}/storageClassMap", text)
        narrator.quote(text)
        here = {
            "MY_NODE_NAME": self._names.node,
            "MY_NAMESPACE": self._names.namespace,
            # The Node is one of the demonstration's own: no pods run on it. The CSI driver has its
            # sockets in the directory of a kubelet, and waits for one to ask.
            "KUBELET_DIR": self._machine.kubelet if self._copies else "none",
        }
        words = " ".join(f"{key}={value}" for key, value in here.items())
        driver = ["--csi"] if self._copies else []
        narrator.command(" ".join([words, "localvolume agent", *driver, "--config $DEMO/config"]))
        began = time.monotonic()
        arguments = [*driver, "--config", self._config]
        self._agent.start(arguments, {**here, "KUBECONFIG": self._kubeconfig})
        await self._agent.wait_ready(PATIENCE_SECONDS)
        narrator.seen(f"ready {took(began)} after its start; there is nothing to publish yet")
        await narrator.rest()

    async def _volumes_appear(self) -> None:
        narrator, witness = self._narrator, self._witness
        narrator.scene("An administrator puts disks in their places")
        for disk in self._machine.disks:
            narrator.command(disk.appearing)
            disk.appear()
            began = time.monotonic()
            volume = await witness.until(
                lambda path=disk.path: witness.volume_at(path),  # type: ignore[misc]
                f"a PersistentVolume for {disk.path}",
            )
            seconds = witness.when(volume) - began
            self._appeared.append(seconds)
            mode = volume.spec.volume_mode or "Filesystem"
            narrator.seen(
                f"PersistentVolume {volume.metadata.name}: {disk.what}, {capacity(volume)}, "
                f"volumeMode {mode}, in the API {milliseconds(seconds)} later"
            )
            await witness.until(
                lambda path=disk.path: witness.volume_at(path, phase="Available"),  # type: ignore[misc]
                f"{volume.metadata.name} to be Available",
            )
            await narrator.rest()

    async def _claims_bind(self) -> None:
        self._narrator.scene("A tenant claims a volume and writes to it")
        await self._deeds.claim("notes", self._machine.disks[0], _SMALL)
        if self._has_raw():
            await self._deeds.claim("tape", self._machine.disks[2], _SMALL)
        await self._narrator.rest()

    async def _claims_go(self) -> None:
        narrator = self._narrator
        narrator.scene("The tenant leaves: what it wrote must be gone before the next one comes")
        old = [await self._deeds.release("notes", self._machine.disks[0])]
        if self._has_raw():
            old.append(await self._deeds.release("tape", self._machine.disks[2]))
        for volume in old:
            await self._deeds.cleaned_and_back(volume)
        self._deeds.nothing_left(self._machine.disks[0])
        if self._has_raw():
            self._deeds.nothing_left(self._machine.disks[2])
        await narrator.rest()

    async def _a_guard_holds(self) -> None:
        """The tenant's filesystem is unmounted by mistake; below it lies somebody else's file."""
        narrator = self._narrator
        disk = self._machine.disks[1]
        narrator.scene("A guard: a volume that is not mounted is not emptied")
        await self._deeds.claim("ledger", disk, _LARGE)
        narrator.command(disk.vanishing)
        disk.vanish()
        others = f"{disk.path}/not-yours.txt"
        narrator.command(f"echo 'the root filesystem, not the volume' > {others}")
        write_text(others, "the root filesystem, not the volume\n")
        volume = await self._deeds.release("ledger", disk)
        held = await self._deeds.event(volume, "VolumeFailedDelete")
        narrator.event(held.type, held.reason, held.message)
        found = ", ".join(contents(disk.path)) or "nothing"
        if found != "not-yours.txt":
            raise NotSeen(f"a file of the root filesystem was destroyed: {disk.path} has {found}")
        narrator.seen(f"{disk.path} still has {found}; the volume is offered to nobody")
        narrator.say("(The provisioner this replaces empties whatever directory it finds there.)")
        await narrator.rest()
        narrator.say(
            "Mounted again, it is the same filesystem, and the cleaning goes on by itself:"
        )
        narrator.command(disk.appearing)
        disk.appear()
        await self._deeds.cleaned_and_back(volume, remounted=time.monotonic())
        self._deeds.nothing_left(disk)
        await narrator.rest()

    def _summary(self) -> None:
        narrator, usage = self._narrator, self._agent.usage()
        narrator.scene("In short")
        narrator.say(
            f"{len(self._appeared)} volumes were in the API at most "
            f"{milliseconds(max(self._appeared))} after their mount; "
            f"{len(self._deeds.recovered)} were cleaned, proved clean and Available again at most "
            f"{max(self._deeds.recovered):.2f} s after they could be. Claims had the volumes made "
            f"for them after at most {milliseconds(max(self._made.bound))}."
        )
        narrator.say(
            f"The agent used {human_size(usage.memory_bytes)} of memory "
            f"and {usage.cpu_seconds:.1f} s of processor time."
        )

    # --- the rest ------------------------------------------------------------------------------

    def _has_raw(self) -> bool:
        return any(disk.block for disk in self._machine.disks)

    def _configuration(self) -> str:
        """As in upstream's ConfigMap; JSON strings are YAML, whatever the path has in it."""
        lines = []
        places = [(self._names.files, self._machine.files, "Filesystem")]
        if self._has_raw():
            places.append((self._names.raw, self._machine.raw, "Block"))
        for name, directory, mode in places:
            lines += [
                f"{name}:",
                f"  hostDir: {json.dumps(directory)}",
                f"  mountDir: {json.dumps(directory)}",
                f"  volumeMode: {mode}",
            ]
        return "\n".join(lines) + "\n"

    def rows(self) -> Sequence[Row]:
        """The table below the transcript."""
        return [self._row(volume) for volume in self._witness.volumes()]

    def _row(self, volume: PersistentVolume) -> Row:
        claim = volume.spec.claim_ref
        leaving = volume.metadata.deletion_timestamp is not None
        return (
            _cut(volume.metadata.name, 17),
            # A CSI volume has no path.
            _cut(os.path.basename(path_of(volume)) or volume.metadata.name, 8),
            volume.spec.storage_class_name,
            capacity(volume),
            f"{phase_of(volume)}, leaving" if leaving else phase_of(volume),
            claim.name if claim else "",
            self._witness.news(volume),
        )


def _cut(text: str, length: int) -> str:
    """As wide as its column in the table: names made for claims have 40 letters."""
    return text if len(text) <= length else f"{text[: length - 2]}.."
