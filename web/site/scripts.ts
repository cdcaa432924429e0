import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Moves inline scripts into files: the policy of the server forbids them. */
export function external(html: string, built: string): string {
  return html.replace(/<script([^>]*)>([^<]+)<\/script>/g, (_, attributes: string, code: string) => {
    const name = `assets/inline-${createHash("sha256").update(code).digest("hex").slice(0, 8)}.js`;
    mkdirSync(join(built, "assets"), { recursive: true });
    writeFileSync(join(built, name), code);
    return `<script${attributes} src="/docs/${name}"></script>`;
  });
}
