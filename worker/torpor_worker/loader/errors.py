"""Errors of loading that the engine tells apart."""

from __future__ import annotations

from torpor_protocol.errors import ModelError


class WeightsCorrupt(ModelError):
    """The weights are not those that the replica first loaded, or their files are damaged."""
