"""One exchange with the API server: sockets, time limits, bytes to objects."""
