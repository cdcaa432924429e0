import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Shell } from "./shell";

interface PaneProps {
  /** The path of the WebSocket. */
  path: string;
  label: string;
  visible: boolean;
}

/** A terminal over a WebSocket. xterm.js is loaded when the first one opens. */
export function TerminalPane({ path, label, visible }: PaneProps) {
  const box = useRef<HTMLDivElement>(null);
  const shell = useRef<Shell>(null);
  const state = useSignal("connecting…");
  useEffect(() => {
    let current = true;
    void import("./shell").then(({ Shell }) => {
      if (!current || !box.current) return;
      shell.current = new Shell(box.current, path, label, (text) => (state.value = text));
    });
    return () => {
      current = false;
      shell.current?.dispose();
    };
  }, [path]);
  useEffect(() => {
    if (visible) shell.current?.show();
  }, [visible]);
  return (
    <div class="terminal" hidden={!visible}>
      <div class="xterm-box" ref={box} />
      <p class="dim" role="status">
        {state.value}
      </p>
    </div>
  );
}
