"""Programs may load the debugger that the kernel has not loaded for itself."""


def _start():
    import sys

    if sys.modules.get("debugpy", sys) is None:
        del sys.modules["debugpy"]


_start()
del _start
