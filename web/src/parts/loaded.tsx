import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { said } from "../api";

interface Loading<T> {
  value?: T;
  problem: string;
  again: () => void;
}

/** Reads something when it is first shown, and whenever one of `inputs` changes. */
export function useLoaded<T>(read: () => Promise<T>, inputs: unknown[] = []): Loading<T> {
  const [value, setValue] = useState<T>();
  const [problem, setProblem] = useState("");
  const [count, setCount] = useState(0);
  useEffect(() => {
    let current = true;
    read().then(
      (value) => {
        if (!current) return;
        setValue(value);
        setProblem("");
      },
      (error) => current && setProblem(said(error)),
    );
    return () => {
      current = false;
    };
  }, [...inputs, count]);
  return { value, problem, again: () => setCount((count) => count + 1) };
}

interface LoadedProps<T> {
  from: Loading<T>;
  /** What is said when the value is an empty list. */
  empty?: ComponentChildren;
  children: (value: T) => ComponentChildren;
}

/** The value, or why it is not there. */
export function Loaded<T>({ from, empty, children }: LoadedProps<T>) {
  if (from.problem) {
    return (
      <div class="empty" role="alert">
        <p class="problem">{from.problem}</p>
        <button onClick={from.again}>Try again</button>
      </div>
    );
  }
  if (from.value === undefined) return <p class="empty dim">Loading…</p>;
  if (empty && Array.isArray(from.value) && !from.value.length) return <div class="empty">{empty}</div>;
  return <>{children(from.value)}</>;
}
