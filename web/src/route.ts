import { signal } from "@preact/signals";

/** The parts of the address after `#/`, decoded. */
export const route = signal(read());

function read(): string[] {
  const path = location.hash.replace(/^#\/?/, "");
  return path.split("/").filter(Boolean).map(decode);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener("hashchange", () => {
  route.value = read();
});

/** A link to a view. */
export function to(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = to(...parts);
}
