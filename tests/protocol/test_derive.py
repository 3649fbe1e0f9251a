"""Derived keys: the function of the RFC, and keys that differ wherever they must."""

from __future__ import annotations

import pytest

from torpor_protocol.errors import ConfigError
from torpor_protocol.transport.derive import bearer_token, curve_keys, derive, hkdf_sha256

MASTER = bytes(range(32))


def test_hkdf_is_that_of_rfc_5869_case_1() -> None:
    output = hkdf_sha256(
        key=bytes([0x0B] * 22),
        salt=bytes.fromhex("000102030405060708090a0b0c"),
        info=bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"),
        length=42,
    )
    assert output.hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )


def test_hkdf_is_that_of_rfc_5869_case_3_without_salt_and_info() -> None:
    output = hkdf_sha256(bytes([0x0B] * 22), b"", b"", 42)
    assert output.hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )
    with pytest.raises(ValueError, match="8161"):
        hkdf_sha256(MASTER, b"", b"", 8161)


def test_keys_stay_the_same_and_differ_by_each_part() -> None:
    assert derive(MASTER, "uid", "engine/0") == derive(MASTER, "uid", "engine/0")
    keys = {
        derive(master, uid, purpose)
        for master in (MASTER, MASTER[::-1])
        for uid in ("uid", "uid2")
        for purpose in ("admin", "engine/0", "engine/1", "worker/0/1", "worker/1/0")
    }
    assert len(keys) == 20
    assert {len(key) for key in keys} == {32}


def test_a_short_master_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="31 bytes"):
        derive(MASTER[:31], "uid", "admin")


def test_curve_keys_and_tokens_of_derived_bytes() -> None:
    secret = derive(MASTER, "uid", "engine/0")
    assert curve_keys(secret) == curve_keys(secret)
    assert curve_keys(secret).public != curve_keys(derive(MASTER, "uid", "engine/1")).public
    token = bearer_token(secret)
    assert len(token) == 43 and token.isascii() and "=" not in token
