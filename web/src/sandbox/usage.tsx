import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { body, client } from "../api";
import { bytes } from "../format";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import { colour, theme } from "../theme";
import type { TabProps } from "./view";

/** How often the samples are read, in milliseconds. The server takes one every few seconds. */
const READ_MS = 5000;

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
            {chart("Disk", all.map((sample) => sample.diskUsed), bytes, last.diskTotal)}
          </div>
        );
      }}
    </Loaded>
  );
}

interface ChartProps {
  title: string;
  times: number[];
  values: number[];
  show: (value: number) => string;
  /** The limit, which the scale never exceeds. */
  most?: number;
}

const HEIGHT = 160;

function Chart({ title, times, values, show, most }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  useEffect(() => {
    const element = box.current!;
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, top) => [0, Math.max(top * 1.2, (most ?? 1) / 20)] } },
        series: [{}, { stroke: colour("--accent"), width: 2, fill: colour("--accent", 0.13), points: { show: values.length < 3 } }],
        axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(show) }],
      },
      [times, values],
      element,
    );
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
    };
  }, [theme.value]);
  useEffect(() => plot.current?.setData([times, values]), [times.at(-1), times.length]);
  const value = values.at(-1) ?? 0;
  return (
    <figure>
      <figcaption>
        {title} <strong>{show(value)}</strong>
        {most !== undefined && title !== "CPU" && <span class="dim"> of {show(most)}</span>}
      </figcaption>
      <div ref={box} role="img" aria-label={`${title} over time, now ${show(value)}`} />
    </figure>
  );
}
