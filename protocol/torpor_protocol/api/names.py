"""What the custom resource is called, and the limits of its numbers and names.

Kept apart from the models so that the operator's handlers and the chart's tests can name the
resource without building any schema.
"""

from __future__ import annotations

from typing import Final

from torpor_protocol.limits import MAX_RANKS

GROUP: Final = "torpor.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "torpor.dev/v1alpha1"
KIND: Final = "InferenceDeployment"
PLURAL: Final = "inferencedeployments"
SINGULAR: Final = "inferencedeployment"
SHORT_NAMES: Final = ("infd",)
CATEGORIES: Final = ("all",)

# A DNS label: pods, Services and label values take no more.
MAX_DERIVED_NAME: Final = 63
# `<name>-<replica>-worker-<index>` is the longest derived name: 16 characters after the name.
# 40 leaves another 7, so that a later suffix does not make existing names invalid.
MAX_NAME: Final = 40

# Awake and standby replicas each; together their indices have at most three digits.
MAX_REPLICAS: Final = 500
MAX_WORLD_SIZE: Final = MAX_RANKS
MAX_MODEL_LEN: Final = 16_777_216
MAX_BATCHED_TOKENS: Final = 1_048_576
MAX_SEQUENCES: Final = 65_536
MAX_QUEUE: Final = 1_000_000
HOUR: Final = 3600  # seconds
MAX_SECONDS: Final = 7 * 24 * HOUR
MAX_ITEMS: Final = 64
MAX_TEXT: Final = 4096
MAX_KUBERNETES_INT: Final = 2**31 - 1
