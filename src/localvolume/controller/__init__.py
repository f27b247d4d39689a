"""The cluster process: one leader routes claims, adopts volumes and acts on lost nodes."""
