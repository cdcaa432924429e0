import { writeFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";
import { compress } from "./compress";

/** Where a server listens during development. */
const SERVER = process.env.SHOAL_URL ?? "http://127.0.0.1:3000";

function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      compress("dist");
      // Keeps the directory in the repository: crates/ui watches it.
      writeFileSync("dist/.gitignore", "*\n!.gitignore\n");
    },
  };
}

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  plugins: [compressed()],
  build: {
    target: "es2022",
    // The policy of the page forbids `data:` and inline scripts.
    assetsInlineLimit: 0,
    // The editor, which is loaded when a file is opened.
    chunkSizeWarningLimit: 700,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/sandboxes", "/v2", "/snapshots", "/templates", "/openapi.json", "/process.Process", "/execute", "/filesystem.Filesystem"].map(
        (path) => [path, { target: SERVER, ws: true, changeOrigin: true }],
      ),
    ),
  },
});
