"""Gives back what only the start of the kernel needed: the memory of every sandbox begins with the kernel's."""


def _start():
    import ctypes
    import gc

    from IPython import get_ipython

    if not hasattr(get_ipython(), "kernel"):
        return
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


_start()
del _start
