"""How well the volumes of a node are: said on their objects and in metrics, and never mended."""
