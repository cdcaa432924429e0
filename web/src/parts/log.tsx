import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { at } from "../format";

interface Line {
  timestamp: string;
  message: string;
  level: string;
}

interface LogLinesProps<T> {
  label: string;
  lines: readonly T[];
  /** Whether the last line stays visible. */
  follow: boolean;
  /** Shown between the time and the message. */
  mark?: (line: T) => ComponentChildren;
}

/** Lines of a log with their times. */
export function LogLines<T extends Line>({ label, lines, follow, mark }: LogLinesProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  return (
    <div class="log" ref={box} tabIndex={0} role="log" aria-label={label}>
      {lines.map((line) => (
        <div class={line.level}>
          <time dateTime={line.timestamp} title={at(line.timestamp)}>
            {line.timestamp.slice(11, 23)}
          </time>{" "}
          {mark?.(line)} {line.message}
        </div>
      ))}
    </div>
  );
}
