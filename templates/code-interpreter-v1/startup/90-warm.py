"""The first kernel of a sandbox loads ahead what most programs use.

It does so when the template is built, which ends with a snapshot of the memory: sandboxes begin
with the modules loaded. Kernels that are started later load what they need, and start faster.
"""


def _start():
    import ctypes
    import gc
    import os

    from IPython import get_ipython

    if not hasattr(get_ipython(), "kernel"):
        return
    # In memory: files of the template that were saved without it say nothing of this.
    try:
        os.mkdir("/dev/shm/code-interpreter")
    except OSError:
        return
    import e2b_charts  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401

    # Every sandbox would have the garbage of loading.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


_start()
del _start
