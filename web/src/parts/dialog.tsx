import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { said } from "../api";

interface DialogProps {
  title: string;
  children: ComponentChildren;
  /** The text of the button that does it. */
  action: string;
  danger?: boolean;
  /** Takes as much room as there is. */
  wide?: boolean;
  /** Escape does not close it: there is work in it. */
  edited?: boolean;
  onClose: () => void;
  /** Closes the dialog when it succeeds; its error is shown in it. */
  onDone: () => Promise<void>;
}

/** A modal form: Enter submits, Escape closes, the focus returns to where it was. */
export function Dialog({ title, children, action, danger, wide, edited, onClose, onDone }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy.value) return;
    busy.value = true;
    problem.value = "";
    try {
      await onDone();
      onClose();
    } catch (error) {
      problem.value = said(error);
    }
    busy.value = false;
  };
  return (
    <dialog
      ref={dialog}
      class={wide ? "wide-dialog" : undefined}
      aria-labelledby="dialog-title"
      onCancel={(event) => edited && event.preventDefault()}
      onClose={onClose}
    >
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        <div class="fields">{children}</div>
        {problem.value && (
          <p class="problem" role="alert">
            {problem.value}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class={danger ? "danger" : "primary"} disabled={busy.value}>
            {busy.value ? `${action}…` : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

interface FieldProps {
  label: string;
  hint?: string;
  children: ComponentChildren;
}

export function Field({ label, hint, children }: FieldProps) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}
