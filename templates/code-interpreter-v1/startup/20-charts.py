"""Figures of matplotlib as charts: `e2b/chart`, beside their picture."""


def _start():
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import Unicode

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return
    plain = shell.code_interpreter_plain

    class ChartFormatter(BaseFormatter):
        """What a figure shows, as far as that can be said."""

        format_type = Unicode("e2b/chart")
        print_method = Unicode("_repr_e2b_chart_")
        _return_type = dict

    def chart(figure):
        # What cannot be read still has its picture.
        try:
            from e2b_charts import chart_figure_to_dict

            return plain(chart_figure_to_dict(figure))
        except Exception:
            return {}

    charts = ChartFormatter(parent=shell.display_formatter)
    charts.for_type_by_name("matplotlib.figure", "Figure", chart)
    shell.display_formatter.formatters[charts.format_type] = charts


_start()
del _start
