"""gRPC on unix sockets: the messages of CSI, errors as statuses, and the server."""
