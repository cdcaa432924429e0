import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colour, theme } from "../theme";

interface ChartProps {
  title: string;
  /** Seconds since 1970. */
  times: number[];
  values: number[];
  show: (value: number) => string;
  /** The limit, which the scale never exceeds. */
  most?: number;
}

const HEIGHT = 160;

/** A value over time, with the last one in its caption. */
export function Chart({ title, times, values, show, most }: ChartProps) {
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
        scales: { y: { range: (_, __, top) => [0, Math.max(top * 1.2, (most ?? 20) / 20)] } },
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
