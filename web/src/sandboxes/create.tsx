import { useSignal } from "@preact/signals";
import { body, client, data } from "../api";
import { listed, pairs } from "../format";
import { refresh } from "../live";
import { Dialog, Field } from "../parts/dialog";
import { useLoaded } from "../parts/loaded";
import { go } from "../route";

const START = {
  name: "",
  template: "base",
  cpu: "",
  memory: "",
  minutes: "30",
  onTimeout: "kill",
  internet: "all",
  allow: "",
  deny: "",
  variables: "",
  labels: "",
};

export function CreateDialog({ onClose, template }: { onClose: () => void; template?: string }) {
  const form = useSignal({ ...START, template: template ?? START.template });
  const templates = useLoaded(() => data(client.GET("/api/v1/templates")));
  const bind = (name: keyof typeof START) => ({
    name,
    value: form.value[name],
    onInput: (event: { currentTarget: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement }) =>
      (form.value = { ...form.value, [name]: event.currentTarget.value }),
  });
  const create = async () => {
    const made = await body(client.POST("/v2/sandboxes", { body: request(form.value) }));
    await refresh(made.sandboxID);
    go("sandboxes", made.sandboxID);
  };
  const names = (templates.value ?? []).flatMap((one) => one.names[0] ?? one.templateID);
  return (
    <Dialog title="New sandbox" action="Create" onClose={onClose} onDone={create}>
      <Field label="Template" hint="A template, a snapshot, or an entry of the catalogue.">
        <input list="templates" required {...bind("template")} />
        <datalist id="templates">
          {names.map((name) => (
            <option value={name} />
          ))}
        </datalist>
      </Field>
      <Field label="Name" hint="Optional. Unique among your sandboxes.">
        <input {...bind("name")} />
      </Field>
      <div class="pair">
        <Field label="Processors">
          <input type="number" min="0.1" step="any" placeholder="the template's" {...bind("cpu")} />
        </Field>
        <Field label="Memory in MiB">
          <input type="number" min="16" placeholder="the template's" {...bind("memory")} />
        </Field>
      </div>
      <div class="pair">
        <Field label="Minutes to live">
          <input type="number" min="0.1" step="any" required {...bind("minutes")} />
        </Field>
        <Field label="Then">
          <select {...bind("onTimeout")}>
            <option value="kill">kill</option>
            <option value="pause">pause</option>
          </select>
        </Field>
      </div>
      <details>
        <summary>Network</summary>
        <Field label="Internet access">
          <select {...bind("internet")}>
            <option value="all">everything, except what is denied</option>
            <option value="none">nothing, except what is allowed</option>
          </select>
        </Field>
        <Field label="Allow" hint="Host names, addresses or ranges, one a line.">
          <textarea rows={2} {...bind("allow")} />
        </Field>
        <Field label="Deny" hint="Addresses or ranges, one a line.">
          <textarea rows={2} {...bind("deny")} />
        </Field>
      </details>
      <details>
        <summary>Variables and labels</summary>
        <Field label="Variables" hint="NAME=value, one a line. Every process has them.">
          <textarea rows={3} {...bind("variables")} />
        </Field>
        <Field label="Labels" hint="name=value, one a line. The list can be filtered by them.">
          <textarea rows={2} {...bind("labels")} />
        </Field>
      </details>
    </Dialog>
  );
}

/** The request that a form makes.
 * @throws when a line is no pair. */
function request(form: typeof START) {
  const labels = pairs(form.labels);
  if (form.name.trim()) labels["shoal/name"] = form.name.trim();
  const allowOut = listed(form.allow);
  const denyOut = listed(form.deny);
  return {
    templateID: form.template.trim(),
    timeout: Math.round(Number(form.minutes) * 60),
    autoPause: form.onTimeout === "pause",
    metadata: labels,
    envVars: pairs(form.variables),
    ...(form.cpu && { cpu: Number(form.cpu) }),
    ...(form.memory && { memory: Number(form.memory) }),
    ...(form.internet === "none" && { allow_internet_access: false }),
    ...((allowOut.length || denyOut.length) && { network: { allowOut, denyOut } }),
  };
}
