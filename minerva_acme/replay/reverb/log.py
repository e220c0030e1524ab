"""Keeps Reverb's log off the terminal."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator

_BAD, _GOOD = 1, 0  # values of std::ios_base::iostate

_lock = threading.Lock()
_num_quiet = 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses Reverb's informational log inside this context: thousands of lines for one restore.

    Reverb writes its log to C++'s `std::clog` and has no switch for it. A stream in a bad state drops its
    input. Errors go to another stream and still appear, as does everything that Python prints. Reverb must
    be loaded before.
    """
    global _num_quiet
    with _lock:
        _num_quiet += 1
        _set_clog_state()(_BAD)
    try:
        yield
    finally:
        with _lock:
            _num_quiet -= 1
            if not _num_quiet:
                _set_clog_state()(_GOOD)


@functools.cache
def _set_clog_state() -> Callable[[int], None]:
    """Returns `std::clog.clear(state)` of the C++ library, or a function without effect if not found."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        clog = ctypes.addressof(ctypes.c_char.in_dll(library, "_ZSt4clog"))
        clear = library["_ZNSt9basic_iosIcSt11char_traitsIcEE5clearESt12_Ios_Iostate"]
    except (OSError, AttributeError, ValueError):
        return lambda state: None
    # The state belongs to a virtual base class, whose offset is stored before the table to which the
    # object's first word points.
    virtual_table = ctypes.c_void_p.from_address(clog).value
    if virtual_table is None:  # not yet constructed: no library that writes to it is loaded
        return lambda state: None
    offset = ctypes.c_ssize_t.from_address(virtual_table - 3 * ctypes.sizeof(ctypes.c_void_p)).value
    clear.argtypes, clear.restype = (ctypes.c_void_p, ctypes.c_int), None
    return lambda state: clear(clog + offset, state)
