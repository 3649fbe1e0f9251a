"""Whom the engine takes: the names of its peers and, where there are keys, the key of each."""

from __future__ import annotations

from torpor_protocol.errors import ConfigError
from torpor_protocol.transport.identity import checked_name, printable


class Admission:
    """Names to public keys, one to one. A name without a key is admitted by its name alone,
    which only the gate of a private directory (ipc) looks at."""

    def __init__(self) -> None:
        self._keys: dict[bytes, str] = {}
        self._names: dict[str, bytes] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._keys

    def admit(self, name: bytes, public_key: str = "") -> None:
        """Take ``name`` from now on, with this key only.

        Raises ConfigError when another name has the key."""
        checked_name(name)
        if public_key and self._names.get(public_key, name) != name:
            raise ConfigError(
                f"The key of {printable(name)} belongs to another peer already.",
                "Give every peer keys of its own.",
            )
        self.revoke(name)
        self._keys[name] = public_key
        if public_key:
            self._names[public_key] = name

    def revoke(self, name: bytes) -> None:
        """Take ``name`` and its key no longer; nothing happens to an unknown name."""
        key = self._keys.pop(name, "")
        self._names.pop(key, None)

    def name_of(self, public_key: str) -> bytes | None:
        """The peer that proved to own this key; None for a key that is not admitted."""
        return self._names.get(public_key)
