"""What a StorageClass asks for: its parameters and templates, whoever they are of."""
