"""Figures of matplotlib as charts: `e2b/chart`, beside their picture."""


def _start():
    import sys

    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import Unicode

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    plain = shell.code_interpreter_plain

    class ChartFormatter(BaseFormatter):
        """The data of a figure, as far as it can be read."""

        format_type = Unicode("e2b/chart")

        def __call__(self, value):
            # Not registered for the type: the inline backend takes from every formatter what it has
            # for figures when it is chosen.
            module = sys.modules.get("matplotlib.figure")
            if module is None or not isinstance(value, module.Figure):
                return None
            # A figure that cannot be read still has its picture.
            try:
                from e2b_charts import chart_figure_to_dict

                return plain(chart_figure_to_dict(value))
            except Exception:
                return {}

    charts = ChartFormatter(parent=shell.display_formatter)
    shell.display_formatter.formatters[charts.format_type] = charts


_start()
del _start
