"""Values that together say everything that the chart knows."""

from typing import Any, Final

PLAIN: Final[dict[str, Any]] = {}

FULL: Final[dict[str, Any]] = {
    "namespace": {"create": True},
    "setPVOwnerRef": True,
    "useJobForCleaning": True,
    "useNodeNameOnly": True,
    "minResyncPeriod": "1h30m",
    "labelsForPV": {"team": "storage"},
    "nodeLabels": ["topology.kubernetes.io/zone"],
    "removeNodeNotReadyTaint": True,
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "jobResources": {"limits": {"memory": "512Mi"}},
    "rbac": {"extraRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "classes": [
        {
            "name": "fast.disks",
            "hostDir": "/mnt/fast/",
            "mountDir": "/discovery/fast",
            "volumeMode": "Block",
            "namePattern": "nvme*",
            "blockCleanerCommand": ["/scripts/dd_zero.sh", 2],
            "firstUse": "clean",
            "cleaningConcurrency": 2,
            "cleaningTimeout": "2h",
            "storageClass": {"reclaimPolicy": "Retain", "isDefaultClass": True},
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
            ],
        },
        {
            "name": "others",
            "hostDir": "/mnt/fast",
            "mountDir": "/discovery/fast",
            "namePattern": "sd*",
            "fsType": "xfs",
            "selector": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}],
            "storageClass": True,
        },
    ],
    "pools": {
        "made": {
            "hostDir": "/mnt/pool",
            "undoPeriod": "1h",
            "reserve": "10Gi",
            "classes": ["made"],
        },
        "images": {"hostDir": "/mnt/images", "mountDir": "/images", "backend": "image"},
        "logical": {"backend": "lvm", "volumeGroupPattern": "disk-[0-9]+", "thinPool": "thin"},
    },
    "flexvolume": {"driver": "bindmount", "gracePeriod": "1m", "names": ["example.com/local"]},
    "disks": {
        "filters": [
            {
                "name": "big",
                "class": "others",
                "match": {"minSize": "100Gi", "transport": "nvme", "rotational": False},
                "fsType": "xfs",
            }
        ],
        "approved": ["sha256:" + "0" * 64],
    },
    "dynamicStorageClasses": [
        {
            "name": "made",
            "parameters": {"mode": "0700", "pool": "made"},
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": False,
            "mountOptions": ["noatime"],
        }
    ],
    "serviceMonitor": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
    "dashboard": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
    "priorityClasses": {"create": True},
    "logFormat": "json",
    "claimsInMetrics": True,
    "controller": {
        "replicas": 3,
        "storageClassNames": ["others", "made"],
        "podLabels": {"team": "storage"},
        "extraArgs": ["--leader-elect-lease-duration=30s"],
    },
}

REPLACED: Final[dict[str, Any]] = {
    "classes": [],
    "nameOverride": "local-static-provisioner",
    "confinement": {"enabled": False},
    "startupProbe": {"tcpSocket": {"port": "metrics"}},
    "readinessProbe": None,
    "securityContext": {"privileged": True, "runAsUser": 0},
    "additionalEnv": [{"name": "LANG", "value": "C"}],
    "replaces": {
        "kutti": {"rootPath": "/kutti/vols"},
        "localPath": {
            "config": '{"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES",'
            ' "paths": ["/opt/local-path-provisioner", "/data"]}]}'
        },
        "openebs": {"basePaths": ["/var/openebs/local"]},
        "elastic": {"driver": "BINDMOUNT"},
    },
    "lvmd": "device-classes:\n- name: ssd\n  volume-group: vg\n  default: true\n",
    "controller": {"enabled": True, "replicas": 1, "affinity": {"podAffinity": {}}},
}

SETS: Final = {"plain": PLAIN, "full": FULL, "replaced": REPLACED}
