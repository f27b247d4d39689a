"""The health of a node's volumes: reported on their objects and in metrics, never repaired."""
