import { signal } from "@preact/signals";
import { said } from "../api";

type Kind = "done" | "warning" | "error";

interface Toast {
  id: number;
  text: string;
  kind: Kind;
}

const toasts = signal<Toast[]>([]);
let last = 0;
const SHOWN_MS = 6000;

/** Shows what is done for some seconds; warnings and errors until they are dismissed. */
export function tell(text: string, kind: Kind = "done"): void {
  last += 1;
  const id = last;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  if (kind === "done") setTimeout(() => dismiss(id), SHOWN_MS);
}

/** Does something, and shows its error. Whether it went well. */
export async function attempt(action: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await action();
    if (done) tell(done);
    return true;
  } catch (error) {
    tell(said(error), "error");
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
        <div key={toast.id} class={toast.kind === "error" ? "toast bad" : "toast"}>
          <span>{toast.text}</span>
          <button class="quiet" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
