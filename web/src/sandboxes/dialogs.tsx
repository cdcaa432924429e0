import { useSignal } from "@preact/signals";
import type { Sandbox } from "../api";
import { cpus, quantity } from "../format";
import { Dialog, Field } from "../parts/dialog";
import { tell } from "../parts/toast";
import { go } from "../route";
import * as actions from "./actions";

interface OfOne {
  one: Sandbox;
  onClose: () => void;
}

interface KillProps {
  sandboxes: Sandbox[];
  onClose: () => void;
  onKilled?: () => void;
}

/** How many are killed at once. */
const AT_ONCE = 4;

export function KillDialog({ sandboxes, onClose, onKilled }: KillProps) {
  const [one] = sandboxes;
  const what = sandboxes.length === 1 && one ? one.name : `${sandboxes.length} sandboxes`;
  const killAll = async () => {
    const waiting = [...sandboxes];
    const work = Array.from({ length: AT_ONCE }, async () => {
      for (let next = waiting.pop(); next; next = waiting.pop()) await actions.kill(next.id);
    });
    await Promise.all(work);
    onKilled?.();
  };
  return (
    <Dialog title={`Kill ${what}?`} action="Kill" danger onClose={onClose} onDone={killAll}>
      <p>Their processes end and their files are deleted. This cannot be undone.</p>
      {sandboxes.length > 1 && (
        <ul class="names">
          {sandboxes.map((one) => (
            <li>{one.name}</li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

export function ProlongDialog({ one, onClose }: OfOne) {
  const minutes = useSignal("30");
  return (
    <Dialog
      title={`Prolong ${one.name}`}
      action="Prolong"
      onClose={onClose}
      onDone={() => actions.setTimeout(one.id, Math.round(Number(minutes.value) * 60))}
    >
      <Field label="Minutes from now" hint="The sandbox ends, or pauses, this long from now.">
        <input
          type="number"
          min="0.1"
          step="any"
          required
          value={minutes.value}
          onInput={(event) => (minutes.value = event.currentTarget.value)}
        />
      </Field>
    </Dialog>
  );
}

export function ForkDialog({ one, onClose }: OfOne) {
  const count = useSignal("1");
  const fork = async () => {
    const ids = await actions.fork(one.id, Number(count.value));
    tell(ids.length === 1 ? `${ids[0]} runs.` : `${ids.length} copies run.`);
    if (ids.length === 1 && ids[0]) go("sandboxes", ids[0]);
  };
  return (
    <Dialog title={`Fork ${one.name}`} action="Fork" onClose={onClose} onDone={fork}>
      <Field label="Copies" hint="Each has the memory and the files of this moment.">
        <input
          type="number"
          min="1"
          max="100"
          required
          value={count.value}
          onInput={(event) => (count.value = event.currentTarget.value)}
        />
      </Field>
    </Dialog>
  );
}

export function SnapshotDialog({ one, onClose }: OfOne) {
  const name = useSignal("");
  const take = async () => tell(`Took snapshot ${await actions.snapshot(one.id, name.value.trim())}.`);
  return (
    <Dialog title={`Take a snapshot of ${one.name}`} action="Take" onClose={onClose} onDone={take}>
      <Field label="Name" hint="Optional. Sandboxes are created from it as from a template.">
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

/** Ends of the sliders. The server has limits of its own, and names them when they are exceeded. */
const CPU_MOST = 8;
const MEMORY_MOST = 8192;

export function ResizeDialog({ one, onClose }: OfOne) {
  const cpu = useSignal(cpus(one.cpu_limit));
  const memory = useSignal(Math.round(quantity(one.memory_limit) / 2 ** 20));
  return (
    <Dialog
      title={`Resize ${one.name}`}
      action="Resize"
      onClose={onClose}
      onDone={() => actions.resize(one.id, cpu.value, memory.value)}
    >
      <Field label={`Processors: ${cpu.value}`}>
        <input
          type="range"
          min="0.25"
          max={Math.max(CPU_MOST, cpu.value)}
          step="0.25"
          value={cpu.value}
          onInput={(event) => (cpu.value = Number(event.currentTarget.value))}
        />
      </Field>
      <Field label={`Memory: ${memory.value} MiB`}>
        <input
          type="range"
          min="128"
          max={Math.max(MEMORY_MOST, memory.value)}
          step="128"
          value={memory.value}
          onInput={(event) => (memory.value = Number(event.currentTarget.value))}
        />
      </Field>
    </Dialog>
  );
}
