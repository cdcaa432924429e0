import type { Sandbox } from "./api";
import { cpus, quantity } from "./format";

/** What of the list is shown. */
export interface Filter {
  /** Words: each must occur in the name, the id, the template, the team or a label `key=value`. */
  text: string;
  /** A state, or empty for all. */
  state: string;
  template: string;
}

export const COLUMNS = ["name", "status", "template", "cpu", "memory", "created_at", "expires_at"] as const;
export type Column = (typeof COLUMNS)[number];

export interface Order {
  column: Column;
  down: boolean;
}

export function matches(one: Sandbox, filter: Filter): boolean {
  if (filter.state && one.status !== filter.state) return false;
  if (filter.template && one.template !== filter.template) return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const labels = Object.entries(one.metadata).map(([name, value]) => `${name}=${value}`);
  const text = [one.name, one.id, one.template, one.user, ...labels].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Equal rows are ordered by id, so that they do not jump. */
export function sorted(all: Iterable<Sandbox>, { column, down }: Order): Sandbox[] {
  const value = (one: Sandbox): string | number => {
    if (column === "cpu") return cpus(one.cpu_limit);
    if (column === "memory") return quantity(one.memory_limit);
    return one[column];
  };
  const sign = down ? -1 : 1;
  return [...all].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === right) return a.id < b.id ? -1 : 1;
    return left < right ? -sign : sign;
  });
}
