"""What an administrator installs on a node and what tenants run there, as manifests."""

from __future__ import annotations

from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render_text


def manifests(name: str, directory: str, *, mode: str, jobs: bool) -> str:
    """The chart's, of a release in a namespace of its name, for the class `name` in `directory`."""
    served = {
        "name": name,
        "hostDir": directory,
        "volumeMode": mode,
        "blockCleanerCommand": ["/scripts/dd_zero.sh"],
        "storageClass": True,
    }
    values = {
        "namespace": {"create": True},
        "classes": [served],
        "useJobForCleaning": jobs,
        "controller": {"enabled": False},  # nothing here is its work
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "metrics"}, "periodSeconds": 1},
    }
    return render_text(values, release=name, namespace=name)


def apply(plane: ControlPlane, text: str) -> None:
    plane.kubectl("apply", "-f", "-", input=text)


def remove(plane: ControlPlane, text: str) -> None:
    plane.kubectl(
        "delete", "-f", "-", "--ignore-not-found", "--timeout=300s", input=text, timeout=360
    )


def tenant(
    name: str, class_name: str, image: str, *, mode: str, replicas: int = 3
) -> dict[str, Any]:
    """A StatefulSet whose pods say what they find in their volumes, then write a secret there."""
    labels = {"app": name}
    container: dict[str, Any] = {
        "name": "database",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", FILES if mode == "Filesystem" else DEVICE],
        "env": [{"name": "SECRET", "value": f"secret-of-{name}"}],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    }
    if mode == "Filesystem":
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    else:
        container["volumeDevices"] = [{"name": "data", "devicePath": "/dev/data"}]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "volumeMode": mode,
            "resources": {"requests": {"storage": "10Mi"}},
        },
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            # The claims go with the StatefulSet.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
            "volumeClaimTemplates": [claim],
        },
    }


# A pod that is restarted finds its own secret: that is no other tenant's data.
FILES = """
found=$(ls -A /data | grep -v '^lost+found$' | tr '\\n' ' ')
[ "$(cat /data/secret 2>/dev/null)" = "$SECRET" ] && found=
echo "found: ${found:-nothing}"
echo "$SECRET" > /data/secret
mkdir -p /data/deep/er && cp /data/secret /data/deep/er/copy && sync -f /data || exit 1
touch /tmp/ready; trap 'exit 0' TERM; while :; do sleep 1; done
"""
DEVICE = """
found=$(tr -d '\\000' < /dev/data | head -c 200)
[ "$(head -c ${#SECRET} /dev/data)" = "$SECRET" ] && found=
echo "found: ${found:-nothing}"
for at in 0 8 40; do
  printf %s "$SECRET" | dd of=/dev/data bs=1M seek=$at conv=notrunc,fsync 2>/dev/null || exit 1
done
touch /tmp/ready; trap 'exit 0' TERM; while :; do sleep 1; done
"""
