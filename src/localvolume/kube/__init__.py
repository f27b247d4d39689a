"""The API server: client, informer, events; knows nothing of volumes."""
