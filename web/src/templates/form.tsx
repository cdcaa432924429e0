import { Field } from "../parts/dialog";
import { type Entry, fieldOf, FIELDS, type FormField, withField } from "./entries";

interface FormProps {
  entries: Entry[];
  /** The index of the shown entry. */
  shown: number;
  onShow: (index: number) => void;
  onChange: (entries: Entry[]) => void;
}

/** One entry of the catalogue as a form. */
export function EntryForm({ entries, shown, onShow, onChange }: FormProps) {
  const entry = entries[shown];
  const add = () => {
    onChange([...entries, { name: "", description: "" }]);
    onShow(entries.length);
  };
  const remove = () => {
    onChange(entries.filter((_, index) => index !== shown));
    onShow(Math.max(0, shown - 1));
  };
  return (
    <div class="entry-form" role="group" aria-label="Entry">
      <div class="bar">
        <select aria-label="Entry" value={shown} disabled={!entries.length} onChange={(event) => onShow(Number(event.currentTarget.value))}>
          {entries.map(({ name }, index) => (
            <option value={index}>{String(name ?? "") || `entry ${index + 1}`}</option>
          ))}
        </select>
        <button type="button" onClick={add}>
          Add
        </button>
        <button type="button" disabled={!entry} onClick={remove}>
          Remove
        </button>
      </div>
      {!entry && <p class="dim">There is no entry.</p>}
      {entry &&
        FIELDS.map((field) => (
          <Input
            key={`${shown} ${field.label}`}
            field={field}
            value={fieldOf(entry, field)}
            onInput={(text) => onChange(entries.map((one, index) => (index === shown ? withField(one, field, text) : one)))}
          />
        ))}
    </div>
  );
}

function Input({ field, value, onInput }: { field: FormField; value: string | undefined; onInput: (text: string) => void }) {
  if (value === undefined) {
    return (
      <Field label={field.label} hint="It is a list or an object: edit it in the JSON.">
        <input disabled />
      </Field>
    );
  }
  if (field.kind === "choice") {
    return (
      <Field label={field.label} hint={field.hint}>
        <select value={value} onChange={(event) => onInput(event.currentTarget.value)}>
          <option value="">default</option>
          {field.choices?.map((choice) => (
            <option value={choice}>{choice}</option>
          ))}
        </select>
      </Field>
    );
  }
  return (
    <Field label={field.label} hint={field.hint}>
      <input
        inputMode={field.kind === "number" ? "numeric" : undefined}
        aria-required={field.required}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </Field>
  );
}
