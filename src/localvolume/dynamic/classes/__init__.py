"""What a StorageClass asks for: its parameters and templates, in each provisioner's format."""
