"""`localvolume why` against a real API server, real disks and real agents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_accounts import account, rule
from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing, agent_pod
from tests.host.support_devices import unmount
from tests.host.support_disks import odd_size, shared_directory
from tests.suite.api import CAPACITIES, CLAIMS, CLASSES, PODS, VOLUMES
from tests.suite.names import HOSTNAME
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

DISKS = pytest.mark.needs("root", "loop", "ext4")
DYNAMIC = "dynamic.localvolume.dev"
NOBODY = "kubernetes.io/no-provisioner"


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


class Ground:
    """Classes, volumes and claims without any agent."""

    def __init__(self, objects: Objects, unique: str) -> None:
        self.objects, self.unique = objects, unique

    def klass(self, provisioner: str = NOBODY, mode: str = "Immediate", **more: Any) -> str:
        body = {
            "metadata": {"name": self.unique},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
            **more,
        }
        self.objects.make(CLASSES, body)
        return self.unique

    def node(self, suffix: str = "node") -> str:
        name = f"{self.unique}-{suffix}"
        self.objects.node(name)
        return name

    def volume(self, node: str, **spec: Any) -> str:
        term = {"key": HOSTNAME, "operator": "In", "values": [node]}
        by = {"pv.kubernetes.io/provisioned-by": f"local-volume-provisioner-{node}"}
        name = f"{self.unique}-pv"
        body = {
            "metadata": {
                "name": name,
                "labels": {"localvolume.dev/node": node},
                "annotations": by,
            },
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.unique,
                "persistentVolumeReclaimPolicy": "Delete",
                "local": {"path": f"/mnt/{name}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
                **spec,
            },
        }
        self.objects.make(VOLUMES, body)
        return name

    def claim(self, *, modes: str = "ReadWriteOnce", to: str = "", **spec: Any) -> str:
        labels = {"localvolume.dev/node": to} if to else {}
        body = {
            "metadata": {"name": self.unique, "labels": labels},
            "spec": {
                "storageClassName": self.unique,
                "accessModes": [modes],
                "resources": {"requests": {"storage": "1Gi"}},
                **spec,
            },
        }
        self.objects.make(CLAIMS, body)
        return f"pvc/{self.unique}"


@pytest.fixture
def ground(objects: Objects, unique: str) -> Ground:
    return Ground(objects, unique)


class TestClaims:
    @pytest.mark.parametrize(
        ("asks", "says"),
        [
            ({"resources": {"requests": {"storage": "5Gi"}}}, "too small: less than 5Gi"),
            ({"modes": "ReadWriteMany"}, "does not have access mode ReadWriteMany"),
            ({"selector": {"matchLabels": {"disk": "nvme"}}}, "selector does not match"),
            ({"volumeMode": "Block"}, "not Block"),
        ],
    )
    def test_no_volume_fits(
        self, ground: Ground, seeing: Seeing, asks: dict[str, Any], says: str
    ) -> None:
        ground.klass()
        ground.volume(ground.node())
        found = seeing.why(ground.claim(**asks))
        assert found["code"] == "no-fit"
        assert says in found["reason"]
        assert f"{ground.unique}-pv" in found["reason"]

    def test_none_is_there(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass()
        assert seeing.why(ground.claim())["code"] == "no-volumes"

    def test_its_class_is_none_of_ours(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass("csi.example.org")
        found = seeing.why(ground.claim())
        assert found["code"] == "class-not-ours"
        assert "csi.example.org" in found["reason"]

    def test_its_class_does_not_exist(self, ground: Ground, seeing: Seeing) -> None:
        assert seeing.why(ground.claim())["code"] == "class-missing"

    @pytest.mark.parametrize("provisioner", [NOBODY, DYNAMIC])
    def test_it_waits_for_a_pod(self, ground: Ground, seeing: Seeing, provisioner: str) -> None:
        ground.klass(provisioner, "WaitForFirstConsumer")
        ground.volume(ground.node())
        claim = ground.claim()
        assert seeing.why(claim)["code"] == "no-pod"
        # And then a pod that no node takes.
        ground.objects.make(
            PODS,
            {
                "metadata": {"name": ground.unique},
                "spec": {
                    "nodeSelector": {"no": "such"},
                    "containers": [{"name": "c", "image": "none"}],
                    "volumes": [
                        {"name": "v", "persistentVolumeClaim": {"claimName": ground.unique}}
                    ],
                },
            },
        )
        seeing.until_why("unschedulable", claim)
        # The scheduler may have heard of the pod before it has of the node, and its Event comes
        # by itself, beside what it writes on the pod.
        until(
            lambda: seeing.why(claim),
            lambda answer: (
                "0/" in answer["reason"] and "Pod" in {one["about"] for one in answer["events"]}
            ),
        )

    def test_no_node_has_room(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass(DYNAMIC)
        node = ground.node()
        labels = {
            "localvolume.dev/node": node,
            "csi.storage.k8s.io/drivername": DYNAMIC,
        }
        ground.objects.make(
            CAPACITIES,
            {
                "metadata": {"name": ground.unique, "labels": labels},
                "storageClassName": ground.unique,
                "nodeTopology": {"matchLabels": {HOSTNAME: node}},
                "capacity": "10Mi",
                "maximumVolumeSize": "10Mi",
            },
        )
        found = seeing.until_why("no-room", ground.claim())
        assert f"{node}: at most 10Mi fit" in found["reason"]

    def test_the_agent_of_its_node_is_missing(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass(DYNAMIC)
        node, other = ground.node(), ground.node("other")
        agent_pod(ground.objects, other)
        found = seeing.until_why("no-agent", ground.claim(to=node))
        assert f"{node} is to make its volume, and the agent there is missing" in found["reason"]

    def test_flexvolume(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass("localvolume.dev/flexvolume")
        found = seeing.until_why("flexvolume", ground.claim())
        assert "its first mount binds it to a node" in found["reason"]
        assert "is it installed?" in found["who"]

    def test_refused_in_the_words_of_the_agent(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass(DYNAMIC, parameters={"modes": "0777"})
        found = seeing.why(ground.claim())
        assert found["code"] == "refused"
        assert "parameter modes is not known; did you mean mode?" in found["reason"]


class TestVolumes:
    def test_its_node_is_lost(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass()
        name = ground.volume(f"{ground.unique}-gone")
        found = seeing.why(name)
        assert found["code"] == "lost"
        assert f"{ground.unique}-gone" in found["reason"]

    @DISKS
    def test_a_life_with_an_unmounted_disk(self, lab: Lab, seeing: Seeing) -> None:
        cls = lab.add_class()
        where = lab.mount(lab.disk(), cls.path("one"))
        lab.start()
        volume = lab.published(cls, "one")
        name = volume["metadata"]["name"]
        assert seeing.why(f"pv/{name}")["code"] == "available"
        claim = lab.bound(volume)
        seeing.until_why("bound", name)
        seeing.until_why("bound", f"pvc/{claim}")
        unmount(where)
        # Which of the two is said depends on how long it is gone already.
        gone = ("bound-vanished", "bound-unhealthy")
        found = until(lambda: seeing.why(f"default/{claim}"), lambda answer: answer["code"] in gone)
        assert str(cls.path("one")) in found["reason"]
        lab.delete_claim(claim)
        found = seeing.until_why("not-cleaned", f"pv/{name}")
        assert "the data stays" in found["reason"]
        assert found["who"] == f"you: put that right on {lab.node}"

    @DISKS
    def test_another_disk_is_in_its_place(self, lab: Lab, seeing: Seeing) -> None:
        cls = lab.add_class()
        where = lab.mount(lab.disk(), cls.path("one"))
        lab.start()
        volume = lab.published(cls, "one")
        lab.bound(volume)
        lab.mount(lab.disk(), where)
        found = seeing.until_why("held", f"pv/{volume['metadata']['name']}")
        assert "it is not the volume that was published: its uuid was" in found["reason"]

    @DISKS
    def test_retain(self, lab: Lab, seeing: Seeing) -> None:
        cls = lab.add_class(policy="Retain")
        lab.mount(lab.disk(), cls.path("one"))
        lab.start()
        volume = lab.published(cls, "one")
        lab.delete_claim(lab.bound(volume))
        found = seeing.until_why("retain", f"pv/{volume['metadata']['name']}")
        assert found["next"] == "nothing, ever: the data stays"

    @DISKS
    def test_nobody_cleans_while_its_agent_is_away(self, lab: Lab, seeing: Seeing) -> None:
        cls = lab.add_class()
        lab.mount(lab.disk(), cls.path("one"))
        lab.start()
        volume = lab.published(cls, "one")
        name = volume["metadata"]["name"]
        lab.stop()
        lab.released(volume)
        assert seeing.why(name)["code"] == "to-clean"
        agent_pod(lab.objects, lab.node, ready=False)
        found = seeing.why(name)
        assert found["code"] == "no-agent"
        assert "ImagePullBackOff" in found["reason"]

    @DISKS
    def test_undo(self, dynamic: DynamicLab, seeing: Seeing) -> None:
        dynamic.pool(undoPeriod="1h")
        cls = dynamic.storage_class()
        dynamic.start()
        claim = dynamic.claim(cls)
        volume = dynamic.made(claim)
        name = volume["metadata"]["name"]
        dynamic.delete(claim)
        found = seeing.until_why("undo", name)
        assert f"localvolume undo {name}" in found["next"]
        dynamic.event(name, "VolumeReleased", "after 1h")
        assert main(["undo", name, "--kubeconfig", seeing.kubeconfig]) == 0
        assert seeing.until_why("undone", name)["who"] == "you: create that claim again"


@DISKS
class TestPaths:
    @pytest.fixture
    def node(self, lab: Lab) -> Lab:
        cls = lab.add_class()
        lab.mount(lab.disk(), cls.path("good"))
        cls.path("plain").mkdir()
        lab.start()
        lab.published(cls, "good")
        return lab

    def on_node(self, lab: Lab, path: str | Path) -> list[str]:
        return [str(path), "--config", str(lab.config_directory), "--node", lab.node]

    def test_in_the_words_of_the_plan(self, node: Lab, seeing: Seeing) -> None:
        cls = node.classes["fs"]
        found = seeing.why(*self.on_node(node, cls.host_path("plain")))
        assert found["code"] == "plan-hold"
        assert "is not a valid mount point" in found["reason"]
        assert main(["plan", *self.on_node(node, "")[1:], "--kubeconfig", seeing.kubeconfig]) == 0
        # As the host calls it, as the agent sees it, and something within it.
        for path in (cls.host_path("good"), str(cls.path("good")), cls.host_path("good/a/b")):
            found = seeing.why(*self.on_node(node, path))
            assert found["code"] == "plan-keep"
            assert "it is offered" in found["reason"]
            assert {"name": "State", "value": "available"} in found["facts"]
        found = seeing.why(*self.on_node(node, cls.host_path("nothing")))
        assert found["code"] == "no-entry"
        found = seeing.why(*self.on_node(node, cls.host_dir))
        assert found["code"] == "class"
        assert {one["name"] for one in found["facts"]} == {"good", "plain"}

    def test_elsewhere_what_the_volumes_say(self, node: Lab, seeing: Seeing) -> None:
        cls = node.classes["fs"]
        path = cls.host_path("good")
        found = seeing.why(path, "--node", node.node)
        assert found["code"] == "available"
        assert found["about"] == path
        said = seeing.ask("why", cls.host_path("gold"), "--node", node.node)
        assert said.status == 1
        assert f"did you mean {path}?" in said.err
        said = seeing.ask("why", path, "--node", "another")
        assert said.status == 1

    def test_a_raw_disk(self, lab: Lab, seeing: Seeing) -> None:
        cls = lab.add_class()
        disk = lab.raw_disk(odd_size())
        lab.stack.enter_context(shared_directory(cls.directory))
        size = str(os.stat(disk.backing).st_size)
        match = {"minSize": size, "maxSize": size, "transport": "loop"}
        wanted = {"name": "loops", "class": cls.name, "match": match, "fsType": "ext4"}
        lab.settings["disks"] = {"filters": [wanted]}
        lab.configure()
        found = seeing.why(*self.on_node(lab, disk.path))
        assert found["code"] == "plan-format"
        facts = {one["name"]: one["value"] for one in found["facts"]}
        assert facts["Filter"] == "loops"
        assert facts["Plan"].startswith("sha256:")

    def test_in_a_pool(self, dynamic: DynamicLab, seeing: Seeing) -> None:
        pool = dynamic.pool()
        cls = dynamic.storage_class()
        dynamic.start()
        claim = dynamic.claim(cls)
        where = dynamic.path_of(dynamic.made(claim))
        found = seeing.why(*self.on_node(dynamic, where / "a" / "b"))
        assert found["code"] == "bound"
        assert "of the pool fast" in found["reason"]
        (pool.directory / "stray").mkdir()
        assert seeing.why(*self.on_node(dynamic, pool.directory / "stray"))["code"] == "orphan"
        assert seeing.why(*self.on_node(dynamic, pool.directory))["code"] == "pool"


class TestNames:
    def test_did_you_mean(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass()
        name = ground.volume(ground.node())
        for words in ((f"{name}x",), (f"pv/{name}x",)):
            said = seeing.ask("why", *words)
            assert said.status == 1
            assert f"did you mean {name}?" in said.err
        ground.claim()
        said = seeing.ask("why", f"pvc/{ground.unique}", "-n", "kube-system")
        assert said.status == 1
        assert f"there is default/{ground.unique}: say -n NAMESPACE" in said.err

    def test_what_may_not_be_read_is_not_called_absent(
        self, lab: Lab, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kubeconfig = account(lab, [rule("nodes", "list")])
        for what in ("pv/some", "pvc/some", "some", "/mnt/some"):
            assert main(["why", what, "--kubeconfig", str(kubeconfig)]) == 3
            said = capsys.readouterr()
            assert "forbidden" in said.err
            assert "there is no" not in said.err

    @pytest.mark.parametrize("kind", ["pv/", ""])
    def test_a_volume_that_may_be_read_but_not_listed(
        self, lab: Lab, kind: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """All else is unknown, and each with the right that is missing."""
        ground = Ground(lab.objects, lab.unique)
        ground.klass()
        name = ground.volume(ground.node("other"))
        kubeconfig = str(account(lab, [rule("persistentvolumes", "get")]))
        words = ["why", f"{kind}{name}", "--kubeconfig", kubeconfig]
        assert main([*words, "-o", "json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["about"] == f"pv/{name}"
        found = {one["name"]: one["value"] for one in said["facts"]}
        assert found["Path"] == f"/mnt/{name}"
        assert found["Agent"].startswith("unknown: ")
        unknown = [one["value"] for one in said["facts"] if one["name"] == "Unknown"]
        for resource in ("nodes", "events", "storageclasses", "volumesnapshotcontents"):
            (line,) = (one for one in unknown if one.startswith(f"{resource}: "))
            assert line == f"{resource}: no right to list them"
        (rights,) = (one["value"] for one in said["facts"] if one["name"] == "Rights")
        assert '…-viewer has these: have it bound to "system:serviceaccount:' in rights
        assert main(["why", "pv/none", "--kubeconfig", kubeconfig]) == 1
        assert "there is no PersistentVolume none" in capsys.readouterr().err

    def test_a_claim_of_a_namespace_that_one_has_no_rights_beyond(
        self, lab: Lab, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ground = Ground(lab.objects, lab.unique)
        ground.klass()
        claim = ground.claim()
        kubeconfig = str(account(lab, [rule("persistentvolumeclaims", "get")]))
        for what in (claim, lab.unique):
            assert main(["why", what, "--kubeconfig", kubeconfig, "-o", "json"]) == 0
            said = json.loads(capsys.readouterr().out)
            assert said["about"] == f"{claim} -n default"
            assert said["code"] == "unknown"
            assert "persistentvolumes: no right to list them" in said["reason"]
        assert main(["why", "snapshot/x", "--kubeconfig", kubeconfig]) == 3
        said = capsys.readouterr().err
        assert "volumesnapshotcontents is forbidden" in said.replace(".snapshot.storage.k8s.io", "")

    def test_as_text(self, ground: Ground, seeing: Seeing) -> None:
        ground.klass()
        said = seeing.ask("why", ground.claim())
        lines = said.out.splitlines()
        assert lines[0].startswith(f"pvc/{ground.unique} -n default: no PersistentVolume")
        assert lines[2].startswith("  Next")
        assert lines[3].startswith("  Who")
        assert any(line.split() == ["Class", ground.unique] for line in lines)
        assert json.loads(seeing.ask("why", f"pvc/{ground.unique}", "-o", "json").out)
