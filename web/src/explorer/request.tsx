import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { base, said } from "../api";
import { key } from "../key";
import { address, curl, type Document, example, fields, headers, named, nameOf, type Operation, type Parameter, type Values } from "./document";

/** The form of one operation, and the answer to the last request. */
export function RequestView({ document, operation }: { document: Document; operation: Operation }) {
  const values = useSignal<Values>({});
  const isJson = operation.body?.type === "application/json";
  const text = useSignal(isJson && operation.body?.required ? JSON.stringify(example(document, operation.body.schema), null, 2) : "");
  const { answer, problem, busy, send, stop } = useRequest(operation);
  const title = useRef<HTMLHeadingElement>(null);
  // On a narrow screen it is below the list.
  useEffect(() => title.current?.scrollIntoView({ block: "nearest" }), []);
  const isUpload = operation.body?.type.startsWith("multipart/");
  return (
    <>
      <h2 ref={title}>{operation.summary}</h2>
      <p>
        <code>
          {operation.method} {operation.path}
        </code>
      </p>
      {operation.description && <p>{operation.description}</p>}
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void send(values.value, text.value);
        }}
      >
        {operation.parameters.map((parameter) => (
          <Input
            key={nameOf(parameter)}
            document={document}
            parameter={parameter}
            value={values.value[nameOf(parameter)] ?? ""}
            onInput={(value) => (values.value = { ...values.value, [nameOf(parameter)]: value })}
          />
        ))}
        {operation.body && !isUpload && (
          <label class="field">
            <span>
              Body, {operation.body.type} {!operation.body.required && <small>(optional)</small>}
            </span>
            <textarea rows={Math.min(14, Math.max(4, text.value.split("\n").length + 1))} value={text.value} spellcheck={false} onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
        )}
        {operation.body && <Fields document={document} operation={operation} />}
        {isUpload && <p class="note">This body has files: send it with curl or an SDK.</p>}
        <div class="actions">
          <button class={operation.method === "DELETE" ? "danger" : "primary"} disabled={busy.value || isUpload}>
            Send {operation.method}
          </button>
          {busy.value && (
            <button type="button" onClick={stop}>
              Stop
            </button>
          )}
        </div>
      </form>
      <Command operation={operation} values={values.value} text={text.value} />
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {answer.value && <AnswerView answer={answer.value} />}
    </>
  );
}

interface InputProps {
  document: Document;
  parameter: Parameter;
  value: string;
  onInput: (value: string) => void;
}

function Input({ document, parameter, value, onInput }: InputProps) {
  const type = named(document, parameter.schema ?? {});
  return (
    <label class="field">
      <span>
        {parameter.name}{" "}
        <small>
          {parameter.in}, {type}
          {!parameter.required && ", optional"}
        </small>
      </span>
      <input required={parameter.required} value={value} autocomplete="off" onInput={(event) => onInput(event.currentTarget.value)} />
      {parameter.description && <small>{parameter.description}</small>}
    </label>
  );
}

function Fields({ document, operation }: { document: Document; operation: Operation }) {
  const all = fields(document, operation.body?.schema ?? {});
  if (!all.length) return null;
  return (
    <details>
      <summary>Fields of the body</summary>
      <div class="wide" tabIndex={0} role="region" aria-label="Fields of the body">
        <table>
          <thead>
            <tr>
              <th>Field</th>
              <th>Type</th>
              <th>Meaning</th>
            </tr>
          </thead>
          <tbody>
            {all.map((field) => (
              <tr key={field.name}>
                <td>
                  <code>{field.name}</code> {field.required && <span class="label">required</span>}
                </td>
                <td>{field.type}</td>
                <td>{field.description}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** The same request for a shell, as soon as it is complete. */
function Command({ operation, values, text }: { operation: Operation; values: Values; text: string }) {
  let line;
  try {
    line = curl(base, operation, values, text);
  } catch {
    return null;
  }
  return (
    <details>
      <summary>As a command</summary>
      <pre class="source">{line}</pre>
    </details>
  );
}

interface Answer {
  status: number;
  type: string;
  text: string;
  /** Milliseconds until the head of the answer. */
  took: number;
  cut: boolean;
  ended: boolean;
}

/** More of an answer is not shown. */
const SHOWN = 200_000;

function useRequest(operation: Operation) {
  const answer = useSignal<Answer | null>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  const ending = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => ending.current?.abort(), []);
  const send = async (values: Values, text: string) => {
    const abort = (ending.current = new AbortController());
    problem.value = "";
    answer.value = null;
    busy.value = true;
    try {
      const url = base + address(operation, values);
      const head = { ...headers(operation, values, text), "X-API-Key": key.value };
      const body = operation.body && text ? text : undefined;
      const began = performance.now();
      const response = await fetch(url, { method: operation.method, headers: head, body, signal: abort.signal });
      const took = performance.now() - began;
      for await (const part of read(response, abort)) answer.value = { ...part, took };
    } catch (error) {
      // Stopped: what has arrived stays.
      if (!abort.signal.aborted) problem.value = error instanceof TypeError ? "The server does not answer, or ended the connection." : said(error);
    }
    busy.value = false;
  };
  return { answer, problem, busy, send, stop: () => ending.current?.abort() };
}

/** The answer so far, with each part that arrives. */
async function* read(response: Response, abort: AbortController): AsyncGenerator<Omit<Answer, "took">> {
  const type = response.headers.get("Content-Type") ?? "";
  const so = { status: response.status, type, text: "", cut: false, ended: false };
  const isText = !type || /json|text|xml|yaml|event-stream/.test(type);
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let size = 0;
  yield { ...so };
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    so.text = isText ? so.text + decoder.decode(value, { stream: true }) : `${size} bytes`;
    if (so.text.length > SHOWN) {
      yield { ...so, text: so.text.slice(0, SHOWN), cut: true, ended: true };
      abort.abort();
      return;
    }
    yield { ...so };
  }
  yield { ...so, text: pretty(type, so.text), ended: true };
}

function pretty(type: string, text: string): string {
  if (!/^application\/(\w+\+)?json\b/.test(type)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function AnswerView({ answer }: { answer: Answer }) {
  const kind = answer.status < 300 ? "ok" : answer.status < 500 ? "warn" : "bad";
  return (
    <section aria-label="Answer" aria-live="polite">
      <p>
        <span class={`state ${kind}`}>{answer.status}</span>{" "}
        <span class="dim">
          after {Math.round(answer.took)} ms {answer.type && `· ${answer.type}`} {!answer.ended && "· receiving…"}
        </span>
      </p>
      {answer.text && (
        <pre class="source" tabIndex={0}>
          {answer.text}
        </pre>
      )}
      {answer.cut && <p class="note warn">Only the beginning is shown.</p>}
    </section>
  );
}
