"""From safetensors files to this rank's slice of the weights."""

from torpor_worker.loader.errors import WeightsCorrupt
from torpor_worker.loader.load import LoadProgress, load_weights, reload_weights

__all__ = ["LoadProgress", "WeightsCorrupt", "load_weights", "reload_weights"]
