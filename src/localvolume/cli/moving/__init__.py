"""`localvolume move-to-csi`: volumes of the `local` kind become volumes of our CSI driver."""
