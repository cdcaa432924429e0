import { useSignal } from "@preact/signals";
import { inside, raw, said, type SandboxDetail } from "../api";
import { decodeLines, type Output } from "./outputs";
import { Shown } from "./shown";
import type { TabProps } from "./view";

/** The port of the code interpreter. */
const INTERPRETER = 49999;

interface Cell {
  code: string;
  language: string;
  outputs: Output[];
  running: boolean;
}

const LANGUAGES = ["python", "javascript", "typescript", "bash", "r", "java"];

/** Code cells, which share the state of one context for each language. */
export function CodeTab({ detail }: TabProps) {
  const cells = useSignal<Cell[]>([]);
  const code = useSignal("");
  const language = useSignal("python");
  const change = (index: number, change: Partial<Cell>) =>
    (cells.value = cells.value.map((cell, at) => (at === index ? { ...cell, ...change } : cell)));
  const runCell = async (event?: Event) => {
    event?.preventDefault();
    if (!code.value.trim()) return;
    const index = cells.value.length;
    const cell = { code: code.value, language: language.value, outputs: [], running: true };
    cells.value = [...cells.value, cell];
    code.value = "";
    const outputs: Output[] = [];
    try {
      for await (const output of execute(detail, cell.code, cell.language)) {
        outputs.push(output);
        change(index, { outputs: [...outputs] });
      }
    } catch (error) {
      const hint = "Sandboxes of the template code-interpreter-v1 have the interpreter.";
      outputs.push({ type: "error", name: "The code was not run", value: said(error), traceback: hint });
    }
    change(index, { outputs, running: false });
  };
  return (
    <div class="cells">
      {cells.value.map((cell, index) => (
        <article key={index} aria-label={`Cell ${index + 1}`}>
          <pre class="source">{cell.code}</pre>
          {cell.outputs.map((output) => (
            <Shown output={output} />
          ))}
          {cell.running && <p class="dim">Running…</p>}
        </article>
      ))}
      <form onSubmit={runCell}>
        <textarea
          aria-label="Code"
          rows={5}
          spellcheck={false}
          placeholder="Code. Control-Enter runs it."
          value={code.value}
          onInput={(event) => (code.value = event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void runCell(event)}
        />
        <div class="bar">
          <select
            aria-label="Language"
            value={language.value}
            onChange={(event) => (language.value = event.currentTarget.value)}
          >
            {LANGUAGES.map((name) => (
              <option value={name}>{name}</option>
            ))}
          </select>
          <button class="primary">Run</button>
        </div>
      </form>
    </div>
  );
}

async function* execute(detail: SandboxDetail, code: string, language: string): AsyncGenerator<Output> {
  const headers = { ...inside(detail, INTERPRETER), "Content-Type": "application/json" };
  const response = await raw("/execute", { method: "POST", headers, body: JSON.stringify({ code, language }) });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const decoded = decodeLines(rest + (value ?? ""), done);
    rest = decoded.rest;
    yield* decoded.outputs;
    if (done) return;
  }
}
