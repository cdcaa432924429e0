import { useSignal } from "@preact/signals";
import { TerminalPane } from "../terminal/pane";
import type { TabProps } from "./view";

/** Terminals in tabs. Each is a shell of its own. */
export function TerminalTab({ one }: TabProps) {
  const open = useSignal([1]);
  const current = useSignal(1);
  const add = () => {
    const next = Math.max(0, ...open.value) + 1;
    open.value = [...open.value, next];
    current.value = next;
  };
  const close = (number: number) => {
    open.value = open.value.filter((other) => other !== number);
    if (current.value === number) current.value = open.value.at(-1) ?? 0;
  };
  return (
    <div class="terminals">
      <div class="subtabs">
        {open.value.map((number) => (
          <span class={number === current.value ? "subtab current" : "subtab"} key={number}>
            <button class="quiet" aria-pressed={number === current.value} onClick={() => (current.value = number)}>
              Shell {number}
            </button>
            <button class="quiet" aria-label={`Close shell ${number}`} onClick={() => close(number)}>
              ✕
            </button>
          </span>
        ))}
        <button class="quiet" onClick={add}>
          + Shell
        </button>
      </div>
      {open.value.map((number) => (
        <TerminalPane
          key={number}
          path={`/api/v1/terminal/sandbox/${one.id}/ws`}
          label={`Shell ${number} of ${one.name}`}
          visible={number === current.value}
        />
      ))}
    </div>
  );
}
