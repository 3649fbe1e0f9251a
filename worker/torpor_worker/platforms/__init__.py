"""What differs between a CPU and an accelerator, behind one interface."""

from torpor_worker.platforms.base import Platform, torch_dtype
from torpor_worker.platforms.select import select_platform

__all__ = ["Platform", "select_platform", "torch_dtype"]
