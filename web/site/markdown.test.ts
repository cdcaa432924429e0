import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { anchor } from "./markdown";
import { pages, ROOT, target } from "./pages";

/** A page's text without its blocks of code. */
function prose(source: string): string {
  return readFileSync(join(ROOT, source), "utf8").replace(/^ *```[^]*?^ *```$/gm, "");
}

function anchors(source: string): string[] {
  const headings = prose(source).matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, heading = ""]) => anchor(heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")));
}

test("anchors are those of GitHub", () => {
  expect(anchor("Files on disk")).toBe("files-on-disk");
  expect(anchor("Snapshots, forks and pauses")).toBe("snapshots-forks-and-pauses");
  expect(anchor("`shoal serve`: a server")).toBe("shoal-serve-a-server");
});

test("links between pages lead to a heading", () => {
  const broken = Object.keys(pages).flatMap((source) => {
    const links = [...prose(source).matchAll(/\]\(([^)\s]*#[^)\s]*)\)/g)].map(([, link = ""]) => link);
    const own = links.filter((link) => !link.includes("://")).map((link) => ({ link, ...target(source, link) }));
    return own.filter(({ file, anchor }) => pages[file] !== undefined && !anchors(file).includes(anchor.slice(1))).map(({ link }) => `${source}: ${link}`);
  });
  expect(broken).toEqual([]);
});
