"""The memory that an object holds: what is bounded can be seen from outside."""

import gc
import sys
import types

_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def held_bytes(root: object) -> int:
    """The size of ``root`` and of everything that it leads to, but for modules, classes and functions."""
    seen: set[int] = set()
    to_visit = [root]
    total = 0
    while to_visit:
        each = to_visit.pop()
        if id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        to_visit += gc.get_referents(each)
    return total
