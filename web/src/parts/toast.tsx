import { signal } from "@preact/signals";
import { said } from "../api";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const toasts = signal<Toast[]>([]);
let last = 0;
const SHOWN_MS = 6000;

/** Shows a message for some seconds; errors until they are dismissed. */
export function tell(text: string, bad = false): void {
  last += 1;
  const id = last;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad }];
  if (!bad) setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Does something, and shows its error. Whether it went well. */
export async function attempt(action: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await action();
    if (done) tell(done);
    return true;
  } catch (error) {
    tell(said(error), true);
    return false;
  }
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.bad ? "toast bad" : "toast"}>
          <span>{toast.text}</span>
          <button class="quiet" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
