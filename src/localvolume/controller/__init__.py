"""The cluster process: adoption and lost nodes, decided purely and done by one leader."""
