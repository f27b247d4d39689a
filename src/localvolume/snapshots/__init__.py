"""Snapshots of CSI volumes for VolumeSnapshotContents: what csi-snapshotter would do."""
