import { expect, test } from "vitest";
import { cellsOf } from "./notebook";

test("cells and outputs of a notebook are read", () => {
  const notebook = {
    nbformat: 4,
    cells: [
      { cell_type: "markdown", source: ["# Title\n", "text"] },
      {
        cell_type: "code",
        source: "plot()",
        outputs: [
          { output_type: "stream", name: "stderr", text: ["a\n", "b\n"] },
          { output_type: "display_data", data: { "image/png": "iVBORw0KGgo=\n", "text/plain": ["<Figure>"] } },
          { output_type: "error", ename: "ValueError", evalue: "bad", traceback: ["one", "two"] },
        ],
      },
      { cell_type: "other" },
    ],
  };
  const cells = cellsOf(JSON.stringify(notebook));
  expect(cells.map(({ kind, source }) => [kind, source])).toEqual([["markdown", "# Title\ntext"], ["code", "plot()"], ["raw", ""]]);
  const [stream, picture, failure] = cells[1]!.outputs;
  expect(stream).toEqual({ type: "stderr", text: "a\nb\n" });
  expect(picture).toMatchObject({ type: "result", png: "iVBORw0KGgo=\n", text: "<Figure>" });
  expect(failure).toEqual({ type: "error", name: "ValueError", value: "bad", traceback: "one\ntwo" });
});

test("other files are refused", () => {
  expect(() => cellsOf("{}")).toThrow("no cells");
  expect(() => cellsOf("not JSON")).toThrow();
});
