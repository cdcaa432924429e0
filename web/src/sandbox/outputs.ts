/** An output of the code interpreter: a line of its answer. */
export interface Output {
  type: string;
  text?: string;
  html?: string;
  png?: string;
  jpeg?: string;
  svg?: string;
  json?: unknown;
  data?: unknown;
  name?: string;
  value?: string;
  traceback?: string;
}

/** The complete lines of a text, and the rest; at the end everything is a line. */
export function decodeLines(text: string, end: boolean): { outputs: Output[]; rest: string } {
  const lines = text.split("\n");
  const rest = end ? "" : (lines.pop() ?? "");
  return { outputs: lines.filter((line) => line.trim()).map((line) => JSON.parse(line) as Output), rest };
}

interface TableCell {
  text: string;
  head: boolean;
}

/** The texts of the first table of a document. Its markup is never put into the page. */
export function tableOf(html: string): TableCell[][] {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const rows = [...(parsed.querySelector("table")?.rows ?? [])];
  return rows.map((row) =>
    [...row.cells].map((cell) => ({ text: cell.textContent?.trim() ?? "", head: cell.tagName === "TH" })),
  );
}
