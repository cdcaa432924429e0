"""Results as data: `e2b/data` for tables, `application/json` for lists and dictionaries."""


def _start():
    import json
    import math
    from datetime import date, time, timedelta

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import Unicode

    # A table with more cells is shown as text and HTML, which are cut by pandas itself.
    cells_max = 1_000_000

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return

    def plain(value):
        """What JSON can say of a value: a moment as ISO 8601, what is missing as null."""
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (date, time)):
            # NaT is a date that has no text.
            return value.isoformat() if value == value else None
        if isinstance(value, timedelta):
            return str(value) if value == value else None
        if hasattr(value, "tolist"):
            inner = value.tolist()
            return plain(inner) if type(inner) is not type(value) else str(value)
        try:
            missing = value != value
            return None if missing is True else str(value)
        except Exception:
            return str(value)

    class DataFormatter(BaseFormatter):
        """Columns of a table, each with its values."""

        format_type = Unicode("e2b/data")
        print_method = Unicode("_repr_e2b_data_")
        _return_type = dict

    def columns(frame):
        if frame.size > cells_max:
            return None
        return {
            str(label): plain(frame.iloc[:, place].tolist())
            for place, label in enumerate(frame.columns)
        }

    def guarded(view):
        """A view that fails, or is missing, keeps none of the others from being shown."""

        def show(value):
            try:
                return view(value)
            except Exception:
                return None

        return show

    def exact(value):
        """The value itself, when JSON can say all of it."""
        json.dumps(value, allow_nan=False)
        return value

    formatters = shell.display_formatter.formatters
    data = DataFormatter(parent=shell.display_formatter)
    # By name: cells that need pandas load it.
    data.for_type_by_name("pandas.core.frame", "DataFrame", guarded(columns))
    data.for_type_by_name("pandas", "DataFrame", guarded(columns))
    formatters[data.format_type] = data
    for kind in (list, dict):
        formatters["application/json"].for_type(kind, guarded(exact))
    shell.code_interpreter_plain = plain


_start()
del _start
