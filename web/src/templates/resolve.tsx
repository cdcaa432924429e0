import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { Loaded, useLoaded } from "../parts/loaded";

/** The resolution of a name or image, with the origin of each value. */
export function Resolve() {
  const typed = useSignal("");
  const asked = useSignal("");
  return (
    <section>
      <h2>Name resolution</h2>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          asked.value = typed.value.trim();
        }}
      >
        <input
          aria-label="Name of a template"
          placeholder="base"
          required
          value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
        <button>Resolve</button>
      </form>
      {asked.value && <Resolved key={asked.value} name={asked.value} />}
    </section>
  );
}

function Resolved({ name }: { name: string }) {
  const query = { templateID: name };
  const resolved = useLoaded(() => data(client.GET("/api/v1/config/templates/resolve", { params: { query } })), [name]);
  return <Loaded from={resolved}>{(found) => <pre class="source">{JSON.stringify(found, null, 2)}</pre>}</Loaded>;
}
