import { expect, test } from "vitest";
import { perMinute, type PoolSample } from "./samples";

function sample(second: number, claimed: number): PoolSample {
  return { at: new Date(second * 1000).toISOString(), size: 1, ready: 1, parked: 0, claimed, misses: 0 };
}

test("a counter is shown by its growth a minute", () => {
  const samples = [sample(0, 5), sample(60, 7), sample(180, 13), sample(190, 14), sample(190, 15), sample(250, 2)];
  expect(perMinute(samples, ({ claimed }) => claimed)).toEqual([0, 2, 3, 1, 0, 0]);
  expect(perMinute([], ({ claimed }) => claimed)).toEqual([]);
});
