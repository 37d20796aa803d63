"""Arrays of NumPy that NumPy does not share through DLPack."""

from __future__ import annotations

import ctypes
from typing import Any

#: `DLDataType.code` of bfloat16, and the place of the code in a `DLTensor`.
_BFLOAT16, _CODE_AT = 4, 20


def is_numpy(value: object) -> bool:
    """Whether a value is an array of NumPy, or of a subclass, without importing it."""
    return any(
        f"{one.__module__}.{one.__qualname__}" == "numpy.ndarray" for one in type(value).__mro__
    )


class _Writable:
    """An array without its mark that it is read-only."""

    def __init__(self, array: Any) -> None:
        # The view that NumPy makes of this object keeps it alive, and with it the array.
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def readable(array: Any) -> Any:
    """An array that is only read, as one that NumPy shares: it refuses those that are read-only,
    because old versions of DLPack cannot say so."""
    if array.flags.writeable:
        return array
    import numpy

    return numpy.asarray(_Writable(array))


class BFloat16:
    """An array of bfloat16 of ml_dtypes as an object with DLPack, whose types NumPy lacks."""

    def __init__(self, array: Any) -> None:
        self.bits = array.view("uint16")

    def __dlpack_device__(self) -> Any:
        return self.bits.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.bits.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = address(capsule, b"dltensor")
        ctypes.c_uint8.from_address(tensor + _CODE_AT).value = _BFLOAT16
        return capsule


def is_bfloat16(value: Any) -> bool:
    """Whether a value is an array of bfloat16 of ml_dtypes."""
    return is_numpy(value) and value.dtype.name == "bfloat16"
