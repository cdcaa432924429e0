"""Data analysis with the code interpreter: variables stay between cells, and plots come back as images and as data.

    pip install e2b-code-interpreter
    shoal template build code-interpreter-v1      # once: docs/code-interpreter.md
    python analysis.py
"""

import base64
import sys

from e2b_code_interpreter import Sandbox

SALES = "month,sold\n1,10\n2,14\n3,9\n4,21\n"

CELLS = [
    "import pandas; sales = pandas.read_csv('sales.csv')",
    "print(sales.sold.describe()[['mean', 'max']].to_string())",
    "sales.plot(x='month', y='sold', title='Sales'); import matplotlib.pyplot as plot; plot.show()",
]

with Sandbox.create(timeout=300) as sandbox:
    sandbox.files.write("sales.csv", SALES)
    for cell in CELLS:
        execution = sandbox.run_code(cell)
        if execution.error:
            sys.exit(f"{execution.error.name}: {execution.error.value}")
        print("".join(execution.logs.stdout), end="")
        for result in execution.results:
            if result.png:
                image = base64.b64decode(result.png)
                print("a plot of", len(image) // 1024, "KiB")
            if result.chart:
                (line,) = result.chart.elements
                print("points of the chart:", [tuple(point) for point in line.points])
