"""Layers that create only their rank's slice of the weights."""
