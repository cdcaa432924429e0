import { join } from "node:path";
import { defineConfig } from "vitepress";
import { compress } from "../../compress";
import { api } from "../api";
import { anchor, repository } from "../markdown";
import { external } from "../scripts";
import { prepare, ROOT, sidebar, SOURCES } from "../pages";
import { resources } from "../resources";

const BUILT = join(ROOT, "web/dist/docs");

prepare({ "api.md": api(), "resources.md": resources() });

/** The documentation as a site, which the server has under `/docs/`. Its pages are those of the repository. */
export default defineConfig({
  title: "Shoal",
  description: "Sandboxes for AI agents",
  base: "/docs/",
  srcDir: SOURCES,
  outDir: BUILT,
  cacheDir: "../node_modules/.vitepress",
  head: [["link", { rel: "icon", href: "/docs/shoal.svg", type: "image/svg+xml" }]],
  // Its default adds an inline style for a moment, which the policy forbids.
  appearance: { disableTransition: false },
  markdown: {
    anchor: { slugify: anchor },
    config: (markdown) => repository(markdown, BUILT),
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
  },
  buildEnd: () => compress(BUILT),
  transformHtml: (html) => external(html, BUILT),
  themeConfig: {
    logo: { src: "/shoal.svg", alt: "" },
    sidebar,
    outline: [2, 3],
    search: { provider: "local" },
  },
});
