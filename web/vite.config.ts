import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Where a server listens during development. */
const SERVER = process.env.SHOAL_URL ?? "http://127.0.0.1:3000";

/** Compresses each file once, so that the server never does. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      const names = readdirSync("dist", { recursive: true, encoding: "utf8" });
      for (const name of names.filter((name) => /\.(html|js|css|svg)$/.test(name))) {
        const file = join("dist", name);
        const contents = readFileSync(file);
        const params = { [constants.BROTLI_PARAM_SIZE_HINT]: contents.length };
        writeFileSync(`${file}.br`, brotliCompressSync(contents, { params }));
        writeFileSync(`${file}.gz`, gzipSync(contents, { level: 9 }));
      }
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
