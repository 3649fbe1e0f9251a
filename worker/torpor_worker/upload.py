"""Arrays on their way to the device."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(array: NDArray[np.generic], device: torch.device | str) -> Tensor:
    """The array on the device, without waiting for it. On a CPU it is the array itself; elsewhere
    the device reads a private pinned copy, so the caller may go on writing its own."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
