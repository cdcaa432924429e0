"""Pictures of Pillow are displayed when they are shown or saved: there is no screen."""


def _start():
    from functools import wraps

    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    try:
        from PIL import Image
    except ImportError:
        return

    def show(self, title=None):
        """Displays this image; a program for it is not looked for."""
        display(self)

    save_file = Image.Image.save

    @wraps(save_file)
    def save(self, fp, format=None, **params):
        save_file(self, fp, format, **params)
        # Not what is written to memory or to an open file: display itself does that.
        if isinstance(fp, str):
            display(self)

    Image.Image.show = show
    Image.Image.save = save


_start()
del _start
