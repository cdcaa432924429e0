import { expect, test } from "vitest";
import { bytes, cpus, duration, listed, pairs, quantity } from "./format";

test("sizes and times", () => {
  expect([0, 1023, 1536, 10 << 20].map(bytes)).toEqual(["0 B", "1023 B", "1.5 KiB", "10 MiB"]);
  expect([0, 59.9, 60, 3661, 90_000, -4].map(duration)).toEqual(["0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h", "0 s"]);
});

test("quantities", () => {
  expect([cpus("500m"), cpus("2")]).toEqual([0.5, 2]);
  expect([quantity("512Mi"), quantity("1Gi"), quantity("7")]).toEqual([512 << 20, 2 ** 30, 7]);
  expect(quantity("a lot")).toBeNaN();
});

test("pairs and lists", () => {
  expect(pairs("A=1\n\nB=x=y\n")).toEqual({ A: "1", B: "x=y" });
  expect(() => pairs("A=1\noops")).toThrow("“oops” has no name");
  expect(listed("a, b\nc,,")).toEqual(["a", "b", "c"]);
});
