"""Groups of snapshots for VolumeGroupSnapshotContents: what csi-snapshotter would do."""
