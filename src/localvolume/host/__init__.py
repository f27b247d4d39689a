"""The node's kernel: mounts, block devices, filesystems, commands; knows nothing of Kubernetes."""
