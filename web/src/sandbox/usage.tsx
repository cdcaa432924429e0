import { body, client } from "../api";
import { bytes } from "../format";
import { Chart } from "../parts/chart";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import type { TabProps } from "./view";

/** How often the samples are read, in milliseconds. The server takes one every few seconds. */
const READ_MS = 5000;

const rate = (value: number) => `${bytes(value)}/s`;

export function UsageTab({ one }: TabProps) {
  const tick = Math.floor(now.value / READ_MS);
  const samples = useLoaded(
    () => body(client.GET("/sandboxes/{id}/metrics", { params: { path: { id: one.id } } })),
    [one.id, one.status === "running" ? tick : 0],
  );
  return (
    <Loaded from={samples} empty="No sample was taken yet: the first comes some seconds after the start.">
      {(all) => {
        const times = all.map((sample) => sample.timestampUnix);
        const chart = (title: string, values: number[], show: (value: number) => string, most?: number) => (
          <Chart title={title} times={times} values={values} show={show} most={most} />
        );
        const last = all.at(-1)!;
        return (
          <div class="charts">
            {chart("CPU", all.map((sample) => sample.cpuUsedPct), (value) => `${Math.round(value)} %`, 100)}
            {chart("Memory", all.map((sample) => sample.memUsed), bytes, last.memTotal)}
            {last.shoal && chart("Received", all.map((sample) => sample.shoal?.receivedRate ?? 0), rate)}
            {last.shoal && chart("Sent", all.map((sample) => sample.shoal?.sentRate ?? 0), rate)}
            {chart("Disk", all.map((sample) => sample.diskUsed), bytes, last.diskTotal)}
          </div>
        );
      }}
    </Loaded>
  );
}
