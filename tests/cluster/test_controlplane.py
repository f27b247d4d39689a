"""The real control plane: it serves, binds and schedules, survives faults, and leaves nothing."""

from localvolume.controlplane import ControlPlane


def test_kubectl_works(control_plane: ControlPlane, unique: str) -> None:
    made = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {unique}}}\ndata: {{a: b}}\n"
    control_plane.kubectl("apply", "-f", "-", input=made)
    assert control_plane.kubectl("get", "configmap", unique, "-o=jsonpath={.data.a}") == "b"
    control_plane.kubectl("delete", "configmap", unique)
