"""A program of the image reaches the API server from its pod."""

import pytest

from tests.cluster.support_objects import Objects
from tests.node.support_pods import log_until, make_pod, pod_spec, pod_until

pytestmark = pytest.mark.needs("kubelet", "image")

ASK = """
import os, ssl, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount"
server = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
request = urllib.request.Request("https://%s:%s/version" % server)
request.add_header("Authorization", "Bearer " + open(place + "/token").read())
trust = ssl.create_default_context(cafile=place + "/ca.crt")
print(urllib.request.urlopen(request, context=trust).status)
"""


def test_a_pod_reaches_the_api_server_as_in_any_cluster(
    provisioner_image: str, objects: Objects, unique: str
) -> None:
    """With its token, at the service's address, and with the certificate checked."""
    spec = pod_spec("", image=provisioner_image)
    spec["containers"][0]["command"] = ["python3.13", "-c", ASK]
    make_pod(objects, unique, spec)
    pod_until(objects, unique, "Succeeded")
    assert log_until(objects.plane, unique, "200").strip() == "200"
