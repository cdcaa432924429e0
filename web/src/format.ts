/** Numbers and times for people. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Nothing for what a backend does not measure. */
export function bytes(count: number | null | undefined): string {
  if (count === undefined || count === null) {
    return "";
  }
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit && count < 10 ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

/** Two units at most: `2 d 3 h`, `4 min 5 s`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0 s";
  const shown = parts.slice(first, first + 2).filter(([count]) => count > 0);
  return shown.map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** A Kubernetes quantity of processors as a number: `500m` is 0.5. */
export function cpus(quantity: string): number {
  return quantity.endsWith("m") ? Number(quantity.slice(0, -1)) / 1000 : Number(quantity);
}

const SCALES: Record<string, number> = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, k: 1e3, M: 1e6, G: 1e9, "": 1 };

/** A Kubernetes quantity of memory in bytes: `512Mi`. */
export function quantity(text: string): number {
  const found = /^([\d.]+)([A-Za-z]*)$/.exec(text);
  const scale = SCALES[found?.[2] ?? ""];
  return found && scale ? Number(found[1]) * scale : NaN;
}

export function at(time: string): string {
  return new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** How long ago. */
export function ago(time: string, now: number): string {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 1 ? "now" : duration(seconds).split(" ").slice(0, 2).join(" ");
}

/** Lines `NAME=value`; the first bad line is the error. */
export function pairs(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of text.split("\n").filter((line) => line.trim())) {
    const equals = line.indexOf("=");
    if (equals < 1) throw new Error(`“${line.trim()}” has no name: write one NAME=value in each line`);
    found[line.slice(0, equals).trim()] = line.slice(equals + 1);
  }
  return found;
}

/** The members of a list, separated by lines or commas. */
export function listed(text: string): string[] {
  return text.split(/[\n,]/).map((part) => part.trim()).filter(Boolean);
}
