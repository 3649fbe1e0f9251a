"""Tensors in oneDNN's own layout whose bytes lie in memory that we chose.

torch packs a weight for oneDNN into memory of its own allocator. Sleep needs those bytes in the
pool, where they can be released and refilled at the same address. torch's C interface (the stable
one, made for ahead-of-time compiled models) builds a tensor over given memory from the layout's
descriptor; it is called here and nowhere else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_Handle = ctypes.c_void_p


@cache
def _library() -> ctypes.CDLL:
    """Raises OSError or AttributeError when torch has no such interface."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    library.aoti_torch_create_tensor_from_blob_v2.argtypes = [
        ctypes.c_void_p,  # data
        ctypes.c_int64,  # dimensions
        ctypes.POINTER(ctypes.c_int64),  # sizes
        ctypes.POINTER(ctypes.c_int64),  # strides
        ctypes.c_int64,  # storage offset
        ctypes.c_int32,  # dtype
        ctypes.c_int32,  # device type
        ctypes.c_int32,  # device index
        ctypes.POINTER(_Handle),  # result
        ctypes.c_int32,  # layout
        ctypes.c_char_p,  # descriptor
        ctypes.c_int64,  # its bytes
    ]
    return library


@cache
def _new_capsule() -> Callable[..., Any]:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make


def descriptor(packed: Tensor) -> bytes:
    """oneDNN's description of a packed tensor's layout; equal for equal shape, dtype and CPU."""
    return bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).tolist())


def raw_bytes(packed: Tensor) -> Tensor:
    """The memory of a packed tensor as uint8; valid while ``packed`` lives."""
    size = int(torch.ops.mkldnn._nbytes(packed))
    address = int(torch.ops.mkldnn.data_ptr(packed))
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


def opaque_tensor(memory: Tensor, shape: tuple[int, int], dtype: torch.dtype, md: bytes) -> Tensor:
    """A packed tensor over ``memory`` (uint8), which must outlive it. ``md``: ``descriptor``."""
    library = _library()
    handle = _Handle()
    failed = library.aoti_torch_create_tensor_from_blob_v2(
        memory.data_ptr(),
        2,
        (ctypes.c_int64 * 2)(*shape),
        (ctypes.c_int64 * 2)(shape[1], 1),
        0,
        getattr(library, f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}")(),
        library.aoti_torch_device_type_cpu(),
        0,
        ctypes.byref(handle),
        library.aoti_torch_layout__mkldnn(),
        md,
        len(md),
    )
    if failed:
        raise RuntimeError(f"torch could not make a packed tensor of {shape} {dtype}")
    capsule = _new_capsule()(handle, None, None)
    tensor: Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule)
    return tensor
