"""What has to be said so that one object becomes another (RFC 7396, the merge patch)."""

from __future__ import annotations

from torpor_operator.model import Manifest


def merge_patch(live: Manifest, wanted: Manifest) -> Manifest:
    """Empty when nothing differs. A field that is wanted no more becomes null; lists are whole. A
    null that is wanted is a field that is not."""
    wanted = {name: value for name, value in wanted.items() if value is not None}
    patch: Manifest = {name: None for name in live if name not in wanted}
    for name, value in wanted.items():
        old = live.get(name)
        if name in live and old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            value = merge_patch(old, value)
            if not value:
                continue
        patch[name] = value
    return patch
