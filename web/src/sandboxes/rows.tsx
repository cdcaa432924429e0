import { useEffect, useRef, useState } from "preact/hooks";
import type { Sandbox } from "../api";
import type { Column } from "../filter";
import { ago, bytes, cpus, quantity } from "../format";
import { now } from "../parts/clock";
import { to } from "../route";
import { Countdown, State } from "../parts/state";
import { order, selected, shown, sortBy } from "./list";

const HEADS: [Column, string][] = [
  ["name", "Name"],
  ["status", "State"],
  ["template", "Template"],
  ["cpu", "CPU"],
  ["memory", "Memory"],
  ["created_at", "Age"],
  ["expires_at", "Ends in"],
];

/** Heights of a row, in pixels; those of the style sheet. */
const WIDE = 44;
const NARROW = 76;
const NARROW_BELOW = 720;
/** Rows that are rendered beyond the visible ones. */
const BEYOND = 12;

/** The list: only visible rows are in the document, so that thousands scroll smoothly. */
export function RowsView() {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600, row: WIDE });
  useEffect(() => {
    const element = box.current!;
    const look = () =>
      setView({
        top: element.scrollTop,
        height: element.clientHeight,
        row: innerWidth < NARROW_BELOW ? NARROW : WIDE,
      });
    look();
    element.addEventListener("scroll", look, { passive: true });
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      sizes.disconnect();
    };
  }, []);
  const all = shown.value;
  const first = Math.max(0, Math.floor(view.top / view.row) - BEYOND);
  const last = Math.min(all.length, Math.ceil((view.top + view.height) / view.row) + BEYOND);
  return (
    <div class="rows" role="table" aria-label="Sandboxes" aria-rowcount={all.length + 1}>
      <div class="row head" role="row" aria-rowindex={1}>
        <span role="columnheader">
          <SelectAll all={all} />
        </span>
        {HEADS.map(([column, title]) => (
          <span role="columnheader" class={column} aria-sort={sortOf(column)}>
            <button class="quiet" onClick={() => sortBy(column)}>
              {title}
              <span aria-hidden="true">{order.value.column === column ? (order.value.down ? " ↓" : " ↑") : ""}</span>
            </button>
          </span>
        ))}
      </div>
      <div class="scroll" role="rowgroup" ref={box} tabIndex={0} aria-label="List of sandboxes">
        <div role="presentation" style={{ height: `${first * view.row}px` }} />
        {all.slice(first, last).map((one, index) => (
          <Row key={one.id} one={one} index={first + index + 2} />
        ))}
        <div role="presentation" style={{ height: `${(all.length - last) * view.row}px` }} />
      </div>
    </div>
  );
}

function sortOf(column: Column) {
  if (order.value.column !== column) return undefined;
  return order.value.down ? "descending" : "ascending";
}

function SelectAll({ all }: { all: Sandbox[] }) {
  const every = all.length > 0 && all.every((one) => selected.value.has(one.id));
  return (
    <input
      type="checkbox"
      aria-label="Select all shown sandboxes"
      checked={every}
      onChange={() => (selected.value = every ? new Set() : new Set(all.map((one) => one.id)))}
    />
  );
}

function select(id: string) {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}

function Row({ one, index }: { one: Sandbox; index: number }) {
  const labels = Object.entries(one.metadata).filter(([name]) => name !== "shoal/name");
  return (
    <div class="row" role="row" aria-rowindex={index} data-sandbox={one.id}>
      <span role="cell">
        <input
          type="checkbox"
          aria-label={`Select ${one.name}`}
          checked={selected.value.has(one.id)}
          onChange={() => select(one.id)}
        />
      </span>
      <span role="cell" class="name">
        <a href={to("sandboxes", one.id)}>{one.name}</a>
        <span class="labels">
          {labels.map(([name, value]) => (
            <span class="label" title={`${name}=${value}`}>
              {name}={value}
            </span>
          ))}
        </span>
      </span>
      <span role="cell" class="status">
        <State of={one.status} />
      </span>
      <span role="cell" class="template">
        {one.template}
      </span>
      <span role="cell" class="cpu">
        {cpus(one.cpu_limit)}
      </span>
      <span role="cell" class="memory">
        {bytes(quantity(one.memory_limit))}
      </span>
      <span role="cell" class="created_at">
        {ago(one.created_at, now.value)}
      </span>
      <span role="cell" class="expires_at">
        <Countdown one={one} />
      </span>
    </div>
  );
}
