"""The page of `localvolume ui` and `status -o html`: its data, its one document, its server."""
