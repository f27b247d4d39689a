"""Volumes made for a claim: from the claim's selected node to the last byte given back."""
