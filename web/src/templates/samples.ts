import type { Schemas } from "../api";

export type PoolSample = Schemas["PoolSample"];

/** How much a counter grew in the minute before each sample. A counter that has shrunk began anew with its server. */
export function perMinute(samples: PoolSample[], of: (sample: PoolSample) => number): number[] {
  return samples.map((sample, index) => {
    const before = samples[index - 1];
    if (!before) return 0;
    const minutes = (Date.parse(sample.at) - Date.parse(before.at)) / 60_000;
    return minutes > 0 ? Math.max(0, of(sample) - of(before)) / Math.max(minutes, 1) : 0;
  });
}
