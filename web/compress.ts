import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** Compresses each file of a directory once, so that the server never does. */
export function compress(directory: string): void {
  const names = readdirSync(directory, { recursive: true, encoding: "utf8" });
  for (const name of names.filter((name) => /\.(html|js|css|svg|txt)$/.test(name))) {
    const file = join(directory, name);
    const contents = readFileSync(file);
    const params = { [constants.BROTLI_PARAM_SIZE_HINT]: contents.length };
    writeFileSync(`${file}.br`, brotliCompressSync(contents, { params }));
    writeFileSync(`${file}.gz`, gzipSync(contents, { level: 9 }));
  }
}
