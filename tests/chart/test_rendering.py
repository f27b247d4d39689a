"""What our own values make of the objects: pods, names, selectors."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.chart.support_helm import (
    CHART,
    NAME,
    Values,
    agent_of,
    one,
    pod_of,
    render,
    render_text,
    understood,
)
from tests.chart.support_sets import FULL, REPLACED, SETS

pytestmark = pytest.mark.needs("go")

Object = dict[str, Any]
CONTROLLER = f"{NAME}-controller"


@pytest.fixture(scope="module")
def full() -> list[Object]:
    return render(FULL)


def test_controller_may_do_nothing_on_its_node(full: list[Object]) -> None:
    pod = pod_of(full, "Deployment")
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}
    assert container["args"] == [
        *("controller", "--log-format=json", "--storageclass-names=others,made"),
        *("--pvc-deletion-delay=60s", "--node-return-period=24h"),
        *("--stale-pv-discovery-interval=10s", "--resync=10m", "--worker-threads=10"),
        *("--listen-address=:8081", "--metrics-path=/metrics"),
        "--leader-elect-lease-duration=30s",
    ]


def test_controller_prefers_to_be_beside_the_control_plane(full: list[Object]) -> None:
    """Where there are such nodes, and its pods are let onto them; it runs anywhere else as well."""
    key = "node-role.kubernetes.io/control-plane"
    pod = pod_of(full, "Deployment")
    affinity = pod["affinity"]["nodeAffinity"]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"] == [{"key": key, "operator": "Exists"}]
    assert pod["tolerations"] == [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]


def matches(selector: dict[str, str], objects: list[Object]) -> set[str]:
    """The kinds whose pods have these labels."""
    return {
        each["kind"]
        for each in objects
        if each["kind"] in ("DaemonSet", "Deployment")
        and selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()
    }


def test_selectors_mean_the_right_pods(full: list[Object]) -> None:
    for kind in ("DaemonSet", "Deployment"):
        assert matches(one(full, kind)["spec"]["selector"]["matchLabels"], full) == {kind}
    for kind, field in (("Service", "selector"), ("NetworkPolicy", "podSelector")):
        for name, pods in ((NAME, "DaemonSet"), (CONTROLLER, "Deployment")):
            selector = one(full, kind, name)["spec"][field]
            assert matches(selector.get("matchLabels", selector), full) == {pods}
    budget = one(full, "PodDisruptionBudget")["spec"]
    assert matches(budget["selector"]["matchLabels"], full) == {"Deployment"}
    (term,) = pod_of(full, "Deployment")["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    selector = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert matches(selector, full) == {"Deployment"}
    for name, job in ((NAME, NAME), (CONTROLLER, CONTROLLER)):
        monitor = one(full, "ServiceMonitor", name)
        labels = one(full, "Service", name)["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        relabelings = monitor["spec"]["endpoints"][0]["relabelings"]
        assert {"targetLabel": "job", "replacement": job} in relabelings


@pytest.mark.parametrize("given", [None, {}])
def test_what_agent_and_controller_may_use(given: Object | None) -> None:
    objects = render({"resources": given, "controller": {"resources": given}})
    (controller,) = pod_of(objects, "Deployment")["containers"]
    for container, memory in ((agent_of(objects), "64Mi"), (controller, "128Mi")):
        assert container["resources"] == {
            "requests": {"cpu": "10m", "memory": memory},
            "limits": {"memory": "1Gi"},
        }


@pytest.mark.parametrize("given", [{"limits": {"memory": "32Mi"}}, {"requests": {}}])
def test_own_resources_replace_the_default(given: Object) -> None:
    """No request of ours meets a smaller limit of theirs: the API server would refuse the pod."""
    objects = render({"resources": given, "controller": {"resources": given}})
    (controller,) = pod_of(objects, "Deployment")["containers"]
    assert agent_of(objects)["resources"] == controller["resources"] == given


@pytest.mark.parametrize("name", SETS)
def test_all_is_labelled_as_ours(name: str) -> None:
    for each in render(SETS[name]):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == NAME
        assert labels["app.kubernetes.io/instance"] == NAME
        if each["kind"] in ("DaemonSet", "Deployment"):
            template = each["spec"]["template"]["metadata"]["labels"]
            assert template["app.kubernetes.io/part-of"] == NAME


def test_one_replica_has_no_disruption_budget() -> None:
    kinds = {each["kind"] for each in render({"controller": {"replicas": 1}})}
    assert "PodDisruptionBudget" not in kinds
    kinds = {each["kind"] for each in render({"controller": {"enabled": False}})}
    assert not kinds & {"PodDisruptionBudget", "Deployment"}


@pytest.mark.parametrize(
    ("values", "release", "name"),
    [
        ({}, "prod", "prod-local-volume-provisioner"),
        ({}, "local-volume-provisioner-2", "local-volume-provisioner-2"),
        ({"nameOverride": "disks"}, "prod", "prod-disks"),
        ({"nameOverride": "disks"}, "my-disks", "my-disks"),
        ({"fullnameOverride": "it"}, "prod", "it"),
        ({"fullnameOverride": "n" * 62 + "-x"}, "prod", "n" * 62),
    ],
)
def test_names(values: Object, release: str, name: str) -> None:
    objects = render(values, release=release)
    assert one(objects, "DaemonSet")["metadata"]["name"] == name
    controller = one(objects, "Deployment")["metadata"]["name"]
    assert controller == f"{name[:52]}-controller"
    assert one(objects, "ConfigMap")["metadata"]["name"] == f"{name}-config"
    assert one(objects, "ServiceAccount", name)
    assert pod_of(objects, "DaemonSet")["serviceAccountName"] == name
    assert pod_of(objects, "Deployment")["serviceAccountName"] == controller


def test_accounts_that_are_there_already() -> None:
    objects = render(
        {
            "serviceAccount": {"create": False, "name": "mine"},
            "controller": {"serviceAccount": {"create": False}},
        }
    )
    assert "ServiceAccount" not in {each["kind"] for each in objects}
    assert pod_of(objects, "DaemonSet")["serviceAccountName"] == "mine"
    assert pod_of(objects, "Deployment")["serviceAccountName"] == "default"


def test_priority_classes_are_used(full: list[Object]) -> None:
    names = {each["metadata"]["name"] for each in full if each["kind"] == "PriorityClass"}
    used = {pod_of(full, kind)["priorityClassName"] for kind in ("DaemonSet", "Deployment")}
    assert names == used == {f"{NAME}-agent", CONTROLLER}
    named = render({"priorityClasses": {"create": True}, "priorityClassName": "mine"})
    assert pod_of(named, "DaemonSet")["priorityClassName"] == "mine"


def test_replaced_provisioners() -> None:
    objects = render(REPLACED)
    agent = agent_of(objects)
    assert agent["args"] == [
        *("agent", "--log-format=text", "--lvmd-config=/etc/topolvm"),
        *("--local-path-config=/etc/local-path",),
        *("--local-path-provisioner-name=rancher.io/local-path",),
        *("--openebs-base-path=/var/openebs/local",),
    ]
    env = {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in agent["env"]
    }
    assert env == {
        **dict.fromkeys(("MY_NODE_NAME", "KUTTI_NODE_NAME", "NODE_NAME"), "spec.nodeName"),
        "MY_NAMESPACE": "metadata.namespace",
        "MY_POD_NAME": "metadata.name",
        "JOB_CONTAINER_IMAGE": agent["image"],
        "KUBELET_DIR": "/var/lib/kubelet",
        "RECORDS_DIR": "/var/lib/localvolume/records",
        "KUTTI_ROOT_PATH": "/kutti/vols",
        "DRIVER_KIND": "BINDMOUNT",
        "LVM_VOLUME_GROUP": "elastic-local-vg",
        "LVM_USE_THIN_VOLUMES": "false",
        "LVM_THIN_POOL": "elastic-local-thinpool",
        "LANG": "C",
    }
    (controller,) = pod_of(objects, "Deployment")["containers"]
    replaced = "kuttiproject/provisioner-localvolume,rancher.io/local-path,openebs.io/local,"
    replaced += "volumes.k8s.elastic.co/elastic-local"
    assert f"--dynamic-provisioners={replaced}" in controller["args"]
    volumes = {each["name"]: each for each in pod_of(objects, "DaemonSet")["volumes"]}
    places = {each["mountPath"]: each["name"] for each in agent["volumeMounts"]}
    for path, key in (("/etc/local-path", "config.json"), ("/etc/topolvm", "lvmd.yaml")):
        name = volumes[places[path]]["configMap"]["name"]
        assert one(objects, "ConfigMap", name)["data"].keys() == {key}


@pytest.mark.parametrize("digest", [None, "sha256:" + "0123456789abcdef" * 4])
def test_an_image_that_is_named_by_digest_is_so_everywhere(digest: str | None) -> None:
    """Whoever may push to the registry moves a tag to another image, which agents run as root."""
    name = "registry.example:5000/ours:1"
    named = f"{name}@{digest}" if digest else name
    text = render_text({"image": name, "imageDigest": digest, "useJobForCleaning": True})
    assert set(re.findall(re.escape(name) + r"[\w@:]*", text)) == {named}
    objects = [each for each in yaml.safe_load_all(text) if each]
    agent = agent_of(objects)
    (controller,) = pod_of(objects, "Deployment")["containers"]
    assert agent["image"] == controller["image"] == named
    assert {"name": "JOB_CONTAINER_IMAGE", "value": named} in agent["env"]
    policy = one(objects, "ValidatingAdmissionPolicy", f"{NAME}-jobs")["spec"]["validations"]
    asked = f'object.spec.template.spec.containers[0].image == "{named}"'
    assert any(asked in each["expression"] for each in policy)


def test_metrics_name_claims_only_where_that_is_asked_for(full: list[Object]) -> None:
    assert understood(agent_of(full)["args"]).claims_in_metrics
    assert not understood(agent_of(render())["args"]).claims_in_metrics


def test_csi_is_served_only_where_that_is_asked_for(full: list[Object]) -> None:
    for objects in (render(), full):
        assert not understood(agent_of(objects)["args"]).csi
    surge = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    agent = agent_of(render({"csi": {"enabled": True}, "updateStrategy": surge}))
    assert understood(agent["args"]).csi
    assert {"name": "KUBELET_DIR", "value": "/var/lib/kubelet"} in agent["env"]
    assert agent["securityContext"]["privileged"] is True


SECURED: Object = {"metrics": {"secure": True, "secretName": "ours"}}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def test_secured_metrics() -> None:
    """Of agent and controller alike: the certificate, the flag, probes and scrapes over TLS."""
    monitored = {"serviceMonitor": {"enabled": True}}
    startup = {"httpGet": {"path": "/ready", "port": "metrics"}}
    objects = render({**SECURED, **monitored, "startupProbe": startup})
    for name, kind in ((NAME, "DaemonSet"), (CONTROLLER, "Deployment")):
        pod = pod_of(objects, kind)
        (container,) = pod["containers"]
        directory = understood(container["args"]).metrics_certificate
        (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == directory]
        # No subPath: the kubelet would never renew the files.
        assert mount == {"name": mount["name"], "mountPath": directory, "readOnly": True}
        (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
        assert volume["secret"] == {"secretName": "ours"}
        asked = [container[probe] for probe in PROBES if probe in container]
        schemes = {each["httpGet"]["scheme"] for each in asked if "httpGet" in each}
        assert schemes == {"HTTPS"}
        (endpoint,) = one(objects, "ServiceMonitor", name)["spec"]["endpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["bearerTokenFile"].startswith("/var/run/secrets/kubernetes.io/")
        assert endpoint["tlsConfig"] == {
            "serverName": f"{one(objects, 'Service', name)['metadata']['name']}.{NAME}.svc",
            "ca": {"secret": {"name": "ours", "key": "ca.crt"}},
        }


def test_metrics_are_not_secured_unless_that_is_asked_for(full: list[Object]) -> None:
    for kind, name in (("DaemonSet", NAME), ("Deployment", CONTROLLER)):
        pod = pod_of(full, kind)
        (container,) = pod["containers"]
        assert understood(container["args"]).metrics_certificate is None
        assert not [each for each in pod["volumes"] if "secret" in each]
        probes = [container[probe] for probe in PROBES if probe in container]
        assert not any("scheme" in each.get("httpGet", {}) for each in probes)
        (endpoint,) = one(full, "ServiceMonitor", name)["spec"]["endpoints"]
        assert endpoint["scheme"] == "http"
        assert not {"bearerTokenFile", "tlsConfig"} & endpoint.keys()
    assert not [each for each in full if each["metadata"]["name"].endswith("-metrics-reader")]


def test_own_ways_of_asking_secured_metrics_win() -> None:
    own = {"insecureSkipVerify": True}
    probe = {"httpGet": {"path": "/ready", "port": 8081, "scheme": "HTTP"}}
    values = {
        **SECURED,
        "serviceMonitor": {"enabled": True, "namespace": "monitoring", "tlsConfig": own},
        "startupProbe": probe,
    }
    objects = render(values)
    for name in (NAME, CONTROLLER):
        (endpoint,) = one(objects, "ServiceMonitor", name)["spec"]["endpoints"]
        assert endpoint["tlsConfig"] == own
    assert agent_of(objects)["startupProbe"] == probe


def test_own_security_context_and_probes_win() -> None:
    agent = agent_of(render(REPLACED))
    assert agent["securityContext"] == REPLACED["securityContext"]
    assert "readinessProbe" not in agent
    assert agent["startupProbe"] == REPLACED["startupProbe"]


def test_upstreams_cleanup_goes_over_the_controllers() -> None:
    given = {"enabled": True, "replicas": 1, "storageClassNames": ["a"], "resync": "1m"}
    (controller,) = pod_of(
        render({"nodeCleanupController": given, "controller": {"resync": "9m"}}), "Deployment"
    )["containers"]
    assert {"--storageclass-names=a", "--resync=1m"} <= set(controller["args"])
    not_enabled = render({"nodeCleanupController": {**given, "enabled": False}})
    (controller,) = pod_of(not_enabled, "Deployment")["containers"]
    assert "--resync=10m" in controller["args"]


def test_taint_is_tolerated_and_named(full: list[Object]) -> None:
    key = "sig-storage-local-static-provisioner/agent-not-ready"
    tolerations = pod_of(full, "DaemonSet")["tolerations"]
    assert tolerations == [*FULL["tolerations"], {"key": key, "operator": "Exists"}]
    data = one(full, "ConfigMap", f"{NAME}-config")["data"]
    assert data["provisionerNotReadyNodeTaintKey"] == key
    assert yaml.safe_load(data["removeNodeNotReadyTaint"]) is True


def test_an_edit_of_the_configuration_restarts_agents() -> None:
    def checksum(**values: Any) -> str:
        template = one(render(values), "DaemonSet")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum()
    assert checksum() != checksum(setPVOwnerRef=True)


def test_alerts_and_dashboard_are_the_files(full: list[Object]) -> None:
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text("utf-8"))
    assert one(full, "PrometheusRule")["spec"] == alerts
    data = one(full, "ConfigMap", f"{NAME}-dashboard")["data"]
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text("utf-8"))
    assert json.loads(data["local-volume-provisioner.json"]) == dashboard


def test_network(full: list[Object]) -> None:
    for name in (NAME, CONTROLLER):
        spec = one(full, "NetworkPolicy", name)["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        (inward,), (outward,) = spec["ingress"], spec["egress"]
        assert inward["from"] == FULL["networkPolicy"]["metricsFrom"]
        assert [port["port"] for port in inward["ports"]] == ["metrics"]
        assert [port["port"] for port in outward["ports"]] == [443, 6443]


@pytest.mark.parametrize("given", [{}, {"enabled": None}])
def test_by_default_nothing_gets_in_but_to_the_metrics(given: Object) -> None:
    """The port that the probes and Prometheus ask, from anywhere; what goes out is not bounded."""
    objects = render({"networkPolicy": given})
    for name, kind in ((NAME, "DaemonSet"), (CONTROLLER, "Deployment")):
        spec = one(objects, "NetworkPolicy", name)["spec"]
        assert matches(spec.pop("podSelector")["matchLabels"], objects) == {kind}
        metrics = {"port": "metrics", "protocol": "TCP"}
        assert spec == {"policyTypes": ["Ingress"], "ingress": [{"ports": [metrics]}]}
        (container,) = pod_of(objects, kind)["containers"]
        assert [port["name"] for port in container["ports"]] == ["metrics"]
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container[probe]
            assert asked.get("httpGet", asked.get("tcpSocket"))["port"] == "metrics"


def test_no_policy_where_it_is_switched_off() -> None:
    kinds = {each["kind"] for each in render({"networkPolicy": {"enabled": False}})}
    assert "NetworkPolicy" not in kinds


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "true"),
        ({"confinement": {"enabled": False}}, None),
        # The policies know the pod's account alone.
        ({"kubeConfigEnv": "/etc/kubeconfig"}, None),
    ],
)
def test_the_agent_is_told_whether_it_is_confined(values: Values, said: str | None) -> None:
    env = {each["name"]: each.get("value") for each in agent_of(render(values))["env"]}
    assert env.get("MUST_BE_CONFINED") == said
