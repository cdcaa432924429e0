import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";

/** The repository. */
export const ROOT = join(import.meta.dirname, "../..");

/** The start page. Its tables are the navigation. */
const START = "docs/README.md";

/** Directories with pages, beside the repository itself. */
const DIRECTORIES = ["docs", "docs/tutorials", "examples"];

/** The path of a page in the site: `docs/` is its root, and files of the repository are in lower case beside it. */
export function path(source: string): string {
  if (source === START) return "index.md";
  const name = source.replace(/^docs\//, "").replace(/\/README\.md$/, ".md");
  return name.toLowerCase();
}

/** The paths of all pages by their sources. */
export const pages: Record<string, string> = Object.fromEntries(
  ["", ...DIRECTORIES]
    .flatMap((directory) => readdirSync(join(ROOT, directory)).map((name) => posix.join(directory, name)))
    .filter((source) => source.endsWith(".md"))
    .map((source) => [source, path(source)]),
);

/** The sources of the site: copies of the pages, below `web`, because modules of pages must find its packages. */
export const SOURCES = join(import.meta.dirname, "pages");

/** Copies all pages to their paths in the site, and the files that the web UI has as well. Writes those that are generated. */
export function prepare(generated: Record<string, string>): void {
  rmSync(SOURCES, { recursive: true, force: true });
  for (const [source, page] of Object.entries(pages)) cpSync(join(ROOT, source), join(SOURCES, page));
  for (const [page, text] of Object.entries(generated)) writeFileSync(join(SOURCES, page), text);
  cpSync(join(ROOT, "web/public"), join(SOURCES, "public"), { recursive: true });
}

/** The page of the repository that is at a path of the site; none for a generated one. */
export function source(copied: string): string | undefined {
  const page = posix.relative(SOURCES, copied);
  return Object.keys(pages).find((source) => pages[source] === page);
}

/** The file that a link means, relative to the repository, and its anchor. */
export function target(source: string, link: string): { file: string; anchor: string } {
  const [name = "", anchor] = link.split("#");
  const file = name === "" ? source : posix.join(posix.dirname(source), name);
  return { file, anchor: anchor === undefined ? "" : `#${anchor}` };
}

interface Item {
  text: string;
  link: string;
}

const GENERATED: Item[] = [
  { text: "API", link: "/api" },
  { text: "Custom resources", link: "/resources" },
];

/** The sections of the start page, each with the pages in the first column of its table. */
function sections(): { text: string; items: Item[] }[] {
  const parts = readFileSync(join(ROOT, START), "utf8").split(/^## /m).slice(1);
  return parts.map((part) => {
    const rows = part.split("\n").filter((line) => line.startsWith("|"));
    const links = rows.flatMap((row) => [...(row.split("|")[1] ?? "").matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)]);
    const items = links.map(([, text = "", link = ""]) => {
      const { file, anchor } = target(START, link);
      return { text, link: `/${path(file).replace(/\.md$/, "")}${anchor}` };
    });
    return { text: part.split("\n")[0] ?? "", items };
  });
}

/** The navigation at the left. The site alone has the generated pages. */
export const sidebar = [
  { text: "Documentation", items: [{ text: "Contents", link: "/" }, { text: "About Shoal", link: "/readme" }] },
  ...sections().map(({ text, items }) => ({ text, items: text === "Reference" ? [...items, ...GENERATED] : items })),
];
