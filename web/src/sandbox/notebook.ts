import type { Output } from "./outputs";

/** A cell of a notebook. */
export interface NotebookCell {
  kind: "code" | "markdown" | "raw";
  source: string;
  outputs: Output[];
}

/** Texts of a notebook are strings, or lists of their lines. */
type Text = string | string[];

interface RawOutput {
  output_type?: string;
  name?: string;
  text?: Text;
  data?: Record<string, unknown>;
  ename?: string;
  evalue?: string;
  traceback?: string[];
}

interface RawCell {
  cell_type?: string;
  source?: Text;
  outputs?: RawOutput[];
}

function joined(text: unknown): string | undefined {
  if (Array.isArray(text)) return text.join("");
  return typeof text === "string" ? text : undefined;
}

function output(raw: RawOutput): Output {
  switch (raw.output_type) {
    case "stream":
      return { type: raw.name === "stderr" ? "stderr" : "stdout", text: joined(raw.text) };
    case "error":
      return { type: "error", name: raw.ename, value: raw.evalue, traceback: raw.traceback?.join("\n") };
    default: {
      const data = raw.data ?? {};
      return {
        type: "result",
        text: joined(data["text/plain"]),
        html: joined(data["text/html"]),
        png: joined(data["image/png"]),
        jpeg: joined(data["image/jpeg"]),
        svg: joined(data["image/svg+xml"]),
        json: data["application/json"],
      };
    }
  }
}

/** The cells of a notebook file (nbformat 4).
 * @throws when the text is no such file. */
export function cellsOf(text: string): NotebookCell[] {
  const { cells } = JSON.parse(text) as { cells?: RawCell[] };
  if (!Array.isArray(cells)) throw new Error("The file has no cells: it is no notebook of Jupyter 4 or later.");
  return cells.map((cell) => ({
    kind: cell.cell_type === "code" || cell.cell_type === "markdown" ? cell.cell_type : "raw",
    source: joined(cell.source) ?? "",
    outputs: (cell.outputs ?? []).map(output),
  }));
}
