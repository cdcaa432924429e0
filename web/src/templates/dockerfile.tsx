import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { Dialog, Field } from "../parts/dialog";
import { attempt, tell } from "../parts/toast";
import { go } from "../route";

const EXAMPLE = "FROM base\nRUN pip install requests\n";

/** Builds a template from a Dockerfile that is typed, pasted or dropped, and shows its log. */
export function BuildDialog({ onClose }: { onClose: () => void }) {
  const name = useSignal("");
  const dockerfile = useSignal("");
  const cpu = useSignal("");
  const memory = useSignal("");
  const drop = (event: DragEvent) => {
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    event.preventDefault();
    void attempt(async () => (dockerfile.value = await file.text()));
  };
  const build = async () => {
    const body = {
      name: name.value.trim(),
      dockerfile: dockerfile.value,
      force: false,
      ...(cpu.value && { cpuCount: Number(cpu.value) }),
      ...(memory.value && { memoryMB: Number(memory.value) }),
    };
    const { templateID, warnings } = await data(client.POST("/api/v1/builds", { body }));
    if (warnings.length) tell(warnings.join("\n"), "warning");
    go("templates", templateID);
  };
  return (
    <Dialog title="Build a template" action="Build" wide edited={dockerfile.value !== ""} onClose={onClose} onDone={build}>
      <Field label="Name" hint="A name, or a name and a tag: app:v2">
        <input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
      <Field label="Dockerfile" hint="Drop a file here. It copies no files of your machine: shoal template build does that.">
        <textarea
          class="code"
          required
          rows={12}
          spellcheck={false}
          placeholder={EXAMPLE}
          value={dockerfile.value}
          onInput={(event) => (dockerfile.value = event.currentTarget.value)}
          onDragOver={(event) => event.preventDefault()}
          onDrop={drop}
        />
      </Field>
      <div class="pair">
        <Field label="Processors">
          <input type="number" min="1" placeholder="the server's" value={cpu.value} onInput={(event) => (cpu.value = event.currentTarget.value)} />
        </Field>
        <Field label="Memory in MiB">
          <input
            type="number"
            min="128"
            placeholder="the server's"
            value={memory.value}
            onInput={(event) => (memory.value = event.currentTarget.value)}
          />
        </Field>
      </div>
    </Dialog>
  );
}
