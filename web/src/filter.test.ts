import { expect, test } from "vitest";
import type { Sandbox } from "./api";
import { matches, sorted } from "./filter";

function sandbox(id: string, more: Partial<Sandbox> = {}): Sandbox {
  return {
    id, name: `sbx-${id}`, template: "base", status: "running", user: "default", metadata: {},
    cpu_limit: "2", memory_limit: "512Mi", created_at: "2026-01-01T00:00:00Z", expires_at: "2026-01-01T00:05:00Z", ...more,
  } as Sandbox;
}

test("every word of a filter must occur", () => {
  const one = sandbox("iabc", { metadata: { team: "Blue", run: "7" } });
  const shown = (text: string) => matches(one, { text, state: "", template: "" });
  expect(shown("")).toBe(true);
  expect(shown("ABC  base")).toBe(true);
  expect(shown("team=blue run=7")).toBe(true);
  expect(shown("team=blue run=8")).toBe(false);
});

test("state and template are exact", () => {
  const one = sandbox("iabc");
  expect(matches(one, { text: "", state: "paused", template: "" })).toBe(false);
  expect(matches(one, { text: "", state: "running", template: "base" })).toBe(true);
  expect(matches(one, { text: "", state: "", template: "bas" })).toBe(false);
});

test("quantities are sorted as numbers, equal ones by id", () => {
  const all = [sandbox("c", { memory_limit: "1Gi" }), sandbox("b"), sandbox("a"), sandbox("d", { memory_limit: "64Mi" })];
  const ids = (down: boolean) => sorted(all, { column: "memory", down }).map((one) => one.id).join("");
  expect(ids(false)).toBe("dabc");
  expect(ids(true)).toBe("cabd");
});
