"""The paths of both ports, one module for each group."""
