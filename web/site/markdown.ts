import { cpSync, mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { MarkdownRenderer } from "vitepress";
import { pages, ROOT, source, target } from "./pages";

/** The directory of the site with the other files that pages link to. Each is shown as text. */
const FILES = "files";

/** The link in the site for one in a page; none for a directory of the repository, which the site lacks. */
function link(page: string, href: string, built: string): string | undefined {
  const { file, anchor } = target(page, href);
  const other = pages[file];
  if (other !== undefined) return `/${other}${anchor}`;
  const found = statSync(join(ROOT, file), { throwIfNoEntry: false });
  if (found === undefined) throw new Error(`${page}: ${href} does not exist`);
  if (!found.isFile()) return undefined;
  const name = `${FILES}/${file}.txt`;
  mkdirSync(dirname(join(built, name)), { recursive: true });
  cpSync(join(ROOT, file), join(built, name));
  return `/${name}`;
}

/** The anchor of a heading, as GitHub computes it. */
export function anchor(heading: string): string {
  const kept = heading.trim().toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, "");
  return kept.replace(/ /g, "-");
}

/**
 * Pages are written for the repository: their links are relative to their files, and what looks like HTML or like a
 * template of Vue is text.
 */
export function repository(markdown: MarkdownRenderer, built: string): void {
  markdown.set({ html: false });
  const text = markdown.renderer.rules.text;
  markdown.renderer.rules.text = (...parts) => (text?.(...parts) ?? "").replace(/\{\{/g, "&#123;&#123;");
  markdown.core.ruler.push("repository", ({ tokens, env }) => {
    const page = source(env.path);
    if (page === undefined) return;
    for (const token of tokens.flatMap((block) => block.children ?? [])) {
      const href = token.type === "link_open" ? (token.attrGet("href") ?? "") : "#";
      if (/^[a-z]+:|^#/.test(href)) continue;
      const inside = link(page, href, built);
      if (inside === undefined) token.attrs = null;
      else token.attrSet("href", inside);
    }
  });
}
