"""The CSI driver `csi.localvolume.dev`: its gRPC services, and how the kubelet learns of it."""
