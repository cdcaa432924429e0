import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Output, tableOf } from "./outputs";

/** An output of a cell. */
export function Shown({ output }: { output: Output }) {
  switch (output.type) {
    case "stdout":
    case "stderr":
      return <pre class={output.type}>{output.text}</pre>;
    case "error":
      return (
        <div class="problem">
          <strong>
            {output.name}: {output.value}
          </strong>
          <pre>{output.traceback?.replaceAll(ANSI, "")}</pre>
        </div>
      );
    case "result":
      return <Result output={output} />;
    default:
      return null;
  }
}

const ANSI = /\x1b\[[0-9;]*m/g;

function Result({ output }: { output: Output }) {
  if (output.png) return <Picture base64={output.png} kind="image/png" />;
  if (output.jpeg) return <Picture base64={output.jpeg} kind="image/jpeg" />;
  if (output.svg) return <Picture base64={btoa(unescape(encodeURIComponent(output.svg)))} kind="image/svg+xml" />;
  const rows = output.html ? tableOf(output.html) : [];
  if (rows.length) {
    return (
      <div class="wide" tabIndex={0} role="region" aria-label="Table">
        <table>
          {rows.map((row) => (
            <tr>{row.map((cell) => (cell.head ? <th>{cell.text}</th> : <td>{cell.text}</td>))}</tr>
          ))}
        </table>
      </div>
    );
  }
  return <pre>{output.text ?? JSON.stringify(output.json ?? output.data ?? "", null, 2)}</pre>;
}

function Picture({ base64, kind }: { base64: string; kind: string }) {
  const url = useSignal("");
  useEffect(() => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    url.value = URL.createObjectURL(new Blob([bytes], { type: kind }));
    return () => URL.revokeObjectURL(url.value);
  }, [base64]);
  return url.value ? <img class="picture" src={url.value} alt="Result" /> : null;
}
