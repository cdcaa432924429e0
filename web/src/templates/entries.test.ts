import { expect, test } from "vitest";
import { entriesOf, fieldOf, FIELDS, textOf, withField } from "./entries";

const field = (label: string) => FIELDS.find((one) => one.label === label)!;

test("a field is changed in its place and leaves all others", () => {
  const entry = { name: "a", other: [1], resources: { cpu: "1", cpuLimit: "2" }, image: "x" };
  const changed = withField(entry, field("CPU"), "3");
  expect(JSON.stringify(changed)).toBe('{"name":"a","other":[1],"resources":{"cpu":"1","cpuLimit":"3"},"image":"x"}');
  expect(fieldOf(changed, field("CPU"))).toBe("3");
});

test("an empty text removes a field, and an object that has nothing else", () => {
  const entry = withField({ name: "a" }, field("Pool size"), "2");
  expect(entry).toEqual({ name: "a", pool: { size: 2 } });
  expect(withField(entry, field("Pool size"), "")).toEqual({ name: "a" });
  expect(withField({ pool: { size: 2, max: 3 } }, field("Pool size"), "")).toEqual({ pool: { max: 3 } });
});

test("values have their types", () => {
  expect(withField({}, field("Internet"), "false")).toEqual({ network: { allowInternetAccess: false } });
  expect(withField({}, field("Description"), "true")).toEqual({ description: "true" });
  expect(withField({}, field("Port"), "x")).toEqual({ port: "x" });
  expect(fieldOf({ startCmd: ["a", "b"] }, field("Start command"))).toBeUndefined();
});

test("other JSON than a list of entries is refused", () => {
  expect(entriesOf(textOf([{ name: "a" }]))).toEqual([{ name: "a" }]);
  for (const text of ["", "{}", "[1]", "[null]"]) expect(() => entriesOf(text)).toThrow();
});
