"""Pictures of Pillow are displayed when they are shown or saved: there is no screen."""


def _start():
    import sys
    from functools import wraps
    from importlib.abc import MetaPathFinder
    from importlib.machinery import PathFinder

    from IPython import get_ipython
    from IPython.display import display

    if not hasattr(get_ipython(), "kernel"):
        return

    def change(Image):
        def show(self, title=None):
            """Displays this image; a program for it is not looked for."""
            display(self)

        save_file = Image.save

        @wraps(save_file)
        def save(self, fp, format=None, **params):
            save_file(self, fp, format, **params)
            # Not what is written to memory or to an open file: display itself does that.
            if isinstance(fp, str):
                display(self)

        Image.show = show
        Image.save = save

    class Finder(MetaPathFinder):
        """Changes Pillow when a program imports it: until then it takes no memory."""

        def find_spec(self, fullname, path, target=None):
            if fullname != "PIL.Image":
                return None
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def execute_and_change(module):
                execute(module)
                change(module.Image)

            spec.loader.exec_module = execute_and_change
            return spec

    if "PIL.Image" in sys.modules:
        change(sys.modules["PIL.Image"].Image)
    sys.meta_path.insert(0, Finder())


_start()
del _start
