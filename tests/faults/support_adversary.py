"""What happens around an agent: tenants come, write and go, and administrators do as they please.

A thread that acts at random. The seed reproduces its choices; what they meet depends on the time.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.faults.support_observer import Observer
from tests.faults.support_restless import Restless
from tests.faults.support_tenants import FileVolume, RawVolume, Volume
from tests.suite.api import CLAIMS, VOLUMES

#: How long a claim may wait for a volume before it is taken back, in seconds.
_PATIENCE = 4.0


@dataclass
class Tenant:
    """A claim, and what it got: `uid` is of the PersistentVolume, empty while there is none."""

    name: str
    resident: bool = False
    since: float = field(default_factory=time.monotonic)
    uid: str = ""
    volume: Volume | None = None


class Adversary(Restless):
    """Start with `with`; at the end everything is mounted, configured and released again."""

    def __init__(
        self,
        plane: ControlPlane,
        volumes: dict[tuple[str, str], Volume],
        observer: Observer,
        config: Path,
        settings: dict[str, Any],
        seed: int,
    ) -> None:
        super().__init__(plane, observer, config, settings, seed)
        self._volumes = volumes
        # As often as each has volumes; the only one of "keep" is never free again.
        self._classes = [v.class_name for v in volumes.values() if v.class_name != "keep"]
        self.tenants: dict[str, Tenant] = {}

    def finish(self) -> None:
        """Stop, and put right what an administrator would; the claims of residents stay."""
        self.end()
        self.configure()
        for volume in self._volumes.values():
            if isinstance(volume, FileVolume) and not volume.there:
                with volume.lock:
                    volume.mount()
        self.look_after()
        for tenant in list(self.tenants.values()):
            if not tenant.resident:
                self.leave(tenant)

    def residents(self) -> list[Tenant]:
        return [tenant for tenant in self.tenants.values() if tenant.resident]

    # --- one thing after the other -------------------------------------------------------------

    def step(self) -> None:
        self.look_after()
        acts = {
            self._claim: 8,
            self._release: 8,
            self._delete_volume: 2,
            self._unmount: 1,
            self._remount: 2,
            self._edit: 1,
        }
        self.act(acts)

    def _claim(self) -> bool:
        if sum(not tenant.uid for tenant in self.tenants.values()) > 2:
            return False
        self.claim(self._random.choice(self._classes))
        return True

    def claim(self, class_name: str, *, resident: bool = False) -> Tenant:
        self._count += 1
        tenant = Tenant(f"claim-{self._count}", resident)
        raw = {v.class_name for v in self._volumes.values() if isinstance(v, RawVolume)}
        self._plane.request(
            "POST",
            CLAIMS,
            {
                "metadata": {"name": tenant.name},
                "spec": {
                    "storageClassName": class_name,
                    "accessModes": ["ReadWriteOnce"],
                    "volumeMode": "Block" if class_name in raw else "Filesystem",
                    "resources": {"requests": {"storage": "1Ki"}},
                },
            },
        )
        self.tenants[tenant.name] = tenant
        return tenant

    def look_after(self) -> bool:
        """Tenants whose claim is bound move in; who waits too long gives up.

        Returns whether all have moved in.
        """
        claims = {c["metadata"]["name"]: c for c in self._plane.request("GET", CLAIMS)["items"]}
        for tenant in list(self.tenants.values()):
            if tenant.uid:
                if claims[tenant.name]["status"].get("phase") != "Bound":
                    self._observer.violation(f"{tenant} lost its volume: {claims[tenant.name]}")
                continue
            claim = claims[tenant.name]
            if claim["status"].get("phase") == "Bound":
                self._move_in(tenant, claim)
            elif time.monotonic() - tenant.since > _PATIENCE and not tenant.resident:
                self._delete(f"{CLAIMS}/{tenant.name}")
                del self.tenants[tenant.name]
        return all(tenant.uid for tenant in self.tenants.values())

    def _move_in(self, tenant: Tenant, claim: dict[str, Any]) -> None:
        got = self._plane.request("GET", f"{VOLUMES}/{claim['spec']['volumeName']}")
        uid, spec = got["metadata"]["uid"], got["spec"]
        if spec.get("claimRef", {}).get("uid") != claim["metadata"]["uid"]:
            self._observer.violation(f"{tenant} is bound to {uid}, which is another's")
        volume = self._volumes.get((spec["storageClassName"], spec["local"]["path"]))
        if volume is None:
            self._observer.violation(f"{tenant} got {spec['local']['path']}, which is no volume")
            return
        with volume.lock:
            if not volume.there:
                return
            if found := volume.found():
                self._observer.violation(f"{tenant} finds {found} in {spec['local']['path']}")
            volume.write(uid)
        tenant.uid, tenant.volume, tenant.since = uid, volume, time.monotonic()

    def _release(self) -> bool:
        settled = [t for t in self.tenants.values() if t.uid and not t.resident]
        if not settled:
            return False
        self.leave(self._random.choice(settled))
        return True

    def leave(self, tenant: Tenant) -> None:
        """Look whether all of its data is still there, then give the volume back."""
        self.look_in_on(tenant)
        self._delete(f"{CLAIMS}/{tenant.name}")
        del self.tenants[tenant.name]

    def look_in_on(self, tenant: Tenant) -> None:
        if tenant.volume is None:
            return
        with tenant.volume.lock:
            missing = tenant.volume.missing(tenant.uid) if tenant.volume.there else ""
        if missing:
            self._observer.violation(f"{tenant} held its volume, and of its data {missing}")

    def _delete_volume(self) -> bool:
        found = self._plane.request("GET", VOLUMES)["items"]
        found = [v for v in found if v["spec"]["persistentVolumeReclaimPolicy"] != "Retain"]
        if not found:
            return False
        self._delete(f"{VOLUMES}/{self._random.choice(found)['metadata']['name']}")
        return True

    def _mounts(self, there: bool) -> list[FileVolume]:
        return [
            v
            for v in self._volumes.values()
            if isinstance(v, FileVolume) and v.returns and v.there == there
        ]

    def _unmount(self) -> bool:
        candidates = self._mounts(True)
        if not candidates:
            return False
        volume = self._random.choice(candidates)
        with volume.lock:
            return volume.unmount()

    def _remount(self) -> bool:
        candidates = self._mounts(False)
        if not candidates:
            return False
        volume = self._random.choice(candidates)
        with volume.lock:
            volume.mount()
        return True

    def _edit(self) -> bool:
        """Another valid configuration, or an invalid one that is corrected soon."""
        settings = json.loads(json.dumps(self._settings))
        classes = settings["storageClassMap"]
        kind = self._random.randrange(4)
        if kind == 0:
            settings["nodeLabelsForPV"] = ["kubernetes.io/hostname"]
        elif kind == 1:
            classes[self._random.choice(list(classes))]["namePattern"] = "*[02468]"
        elif kind == 2:
            del classes[self._random.choice(list(classes))]
        else:
            settings["storageClassMap"] = "nonsense"
        self.configure(settings)
        if kind >= 2:
            time.sleep(self._random.uniform(0, 0.3))
            self.configure()
        return True
