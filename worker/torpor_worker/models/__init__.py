"""Model architectures, and how the rest of the worker gets one."""

from torpor_worker.models.base import ShardedModel
from torpor_worker.models.cache_spec import get_kv_cache_spec
from torpor_worker.models.registry import build_model

__all__ = ["ShardedModel", "build_model", "get_kv_cache_spec"]
