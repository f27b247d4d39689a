"""What happens around an agent: tenants come, write and go, and administrators do as they please.

A thread that acts at random. The seed reproduces its choices; what they meet depends on the time.
"""

import contextlib
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localvolume.controlplane import ControlPlane, RequestFailed
from tests.faults.support_observer import Observer
from tests.faults.support_tenants import FileVolume, RawVolume, Volume

VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"

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


class Adversary:
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
        self._plane = plane
        self._volumes = volumes
        self._observer = observer
        self._config = config
        self._settings = settings
        self._random = random.Random(seed)
        # As often as each has volumes; the only one of "keep" is never free again.
        self._classes = [v.class_name for v in volumes.values() if v.class_name != "keep"]
        self._ending = threading.Event()
        self.tenants: dict[str, Tenant] = {}
        self._count = 0
        self.done: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="adversary", daemon=True)

    def __enter__(self) -> "Adversary":
        self.configure()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(30)

    def finish(self) -> None:
        """Stop, and put right what an administrator would; the claims of residents stay."""
        self._ending.set()
        self._thread.join(30)
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

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.step()
                time.sleep(self._random.uniform(0, 0.08))
        except Exception as error:  # noqa: BLE001 - without its adversary the test shows nothing
            self._observer.violation(f"the adversary failed: {error!r}")

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
        act = self._random.choices(list(acts), list(acts.values()))[0]
        if act():
            self.done[act.__name__.strip("_")] += 1

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

    def _delete(self, path: str) -> None:
        with contextlib.suppress(RequestFailed):
            self._plane.request("DELETE", path)

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

    def configure(self, settings: dict[str, Any] | None = None) -> None:
        for key, value in (settings or self._settings).items():
            new = self._config.with_name("new")
            new.write_text(json.dumps(value))
            new.rename(self._config / key)
