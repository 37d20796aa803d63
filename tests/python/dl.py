"""`DLTensor`s made by hand, for the C entry points `NAME_dl` and for types that NumPy
does not export."""

import ctypes

import numpy as np


class DLTensor(ctypes.Structure):
    """The layout of DLPack's tensor; strides are in elements and may be NULL."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}


def tensor(array, *, with_strides=True, **changes):
    """Returns a DLTensor that borrows and keeps a NumPy array; `changes` overrides its fields."""
    result = DLTensor()
    result.keep = array
    result.data = array.ctypes.data
    result.device_type = 1
    result.ndim = array.ndim
    bfloat16 = array.dtype.name == "bfloat16"
    result.code = CODES["V"] if bfloat16 else CODES[array.dtype.kind]
    result.bits = array.dtype.itemsize * 8
    result.lanes = 1
    if array.ndim:
        result.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        if with_strides:
            steps = [s // array.itemsize for s in array.strides]
            result.strides = (ctypes.c_int64 * array.ndim)(*steps)
    for name, value in changes.items():
        if name in ("shape", "strides") and value is not None:
            value = (ctypes.c_int64 * max(len(value), 1))(*value)
        setattr(result, name, value)
    return result


class Module:
    """A module opened by ctypes: its `_dl` and raw entries, and its last error."""

    def __init__(self, path, mode=ctypes.DEFAULT_MODE):
        self.library = ctypes.CDLL(path, mode=mode)
        self.library.tec_last_error.restype = ctypes.c_char_p

    def last_error(self):
        """Returns the last error message of this thread."""
        text = self.library.tec_last_error()
        return "" if text is None else text.decode()

    def dl(self, name, *args):
        """Calls `NAME_dl`; arrays become DLTensors, other arguments are passed unchanged."""
        tensors = [tensor(a) if isinstance(a, np.ndarray) else a for a in args]
        passed = [ctypes.byref(t) if isinstance(t, DLTensor) else t for t in tensors]
        return getattr(self.library, name + "_dl")(*passed)

    def raw(self, name, *args):
        """Calls the raw entry; arrays become addresses."""
        passed = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in args]
        return getattr(self.library, name)(*passed)
