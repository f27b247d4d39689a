"""The main job shown live: a machine, a cluster and a story of its own, and nothing left behind."""
