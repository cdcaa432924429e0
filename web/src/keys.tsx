import { useSignal } from "@preact/signals";
import { status } from "./status";
import { body, client, data } from "./api";
import { at } from "./format";
import { Dialog, Field } from "./parts/dialog";
import { Loaded, useLoaded } from "./parts/loaded";
import { Table } from "./parts/table";

export function KeysView() {
  return (
    <>
      <h1>Keys and teams</h1>
      <Teams />
      {status.value?.admin === false ? (
        <p class="note">Keys are listed and made with an admin key. Yours belongs to the team {status.value.team}.</p>
      ) : (
        <Keys />
      )}
    </>
  );
}

interface Share {
  used: number;
  limit?: number | null;
}

function Use({ of, unit = "", scale = 1 }: { of?: Share | null; unit?: string; scale?: number }) {
  if (!of) return <span class="dim">—</span>;
  return (
    <>
      {of.used / scale} {of.limit != null && <span class="dim">of {of.limit / scale} </span>}
      {unit}
    </>
  );
}

function Teams() {
  const teams = useLoaded(() => data(client.GET("/api/v1/teams")));
  return (
    <Loaded from={teams}>
      {(all) => (
        <Table
          label="Teams"
          rows={all}
          id={(team) => team.name}
          columns={[
            { title: "Team", cell: (team) => team.name },
            { title: "Sandboxes", cell: (team) => <Use of={team.sandboxes} /> },
            { title: "CPU", cell: (team) => <Use of={team.cpuMilli} scale={1000} /> },
            { title: "Memory", cell: (team) => <Use of={team.memoryMB} unit="MiB" /> },
            { title: "Disk", cell: (team) => <Use of={team.diskMB} unit="MiB" /> },
            { title: "Snapshots", cell: (team) => <Use of={team.snapshots} /> },
          ]}
        />
      )}
    </Loaded>
  );
}

function Keys() {
  const keys = useLoaded(() => data(client.GET("/api/v1/keys")));
  const making = useSignal(false);
  const removing = useSignal<{ id: string; name: string } | null>(null);
  const secret = useSignal("");
  return (
    <section>
      <div class="bar">
        <h2>Keys</h2>
        <button class="primary" onClick={() => (making.value = true)}>
          New key
        </button>
      </div>
      {secret.value && (
        <p class="note" role="alert">
          The new key, shown this once: <code>{secret.value}</code>{" "}
          <button onClick={() => navigator.clipboard.writeText(secret.value)}>Copy</button>{" "}
          <button onClick={() => (secret.value = "")}>Hide</button>
        </p>
      )}
      <Loaded from={keys}>
        {(all) => (
          <Table
            label="Keys"
            rows={all}
            id={(one) => one.id}
            columns={[
              {
                title: "Name",
                cell: (one) => (
                  <>
                    {one.name} {one.admin && <span class="label">admin</span>} {one.own && <span class="label">this tab's</span>}
                  </>
                ),
              },
              { title: "Team", cell: (one) => one.team },
              { title: "Key", cell: (one) => <code>{one.mask}</code> },
              { title: "Made", cell: (one) => at(one.createdAt) },
              {
                title: "Action",
                quiet: true,
                cell: (one) => (
                  <button class="danger" aria-label={`Delete key ${one.name}`} onClick={() => (removing.value = one)}>
                    Delete
                  </button>
                ),
              },
            ]}
          />
        )}
      </Loaded>
      {making.value && (
        <NewKey
          onClose={() => (making.value = false)}
          onMade={(made) => {
            secret.value = made;
            keys.again();
          }}
        />
      )}
      {removing.value && (
        <Dialog
          title={`Delete the key ${removing.value.name}?`}
          action="Delete"
          danger
          onClose={() => (removing.value = null)}
          onDone={async () => {
            await body(client.DELETE("/api/v1/keys/{id}", { params: { path: { id: removing.value!.id } } }));
            keys.again();
          }}
        >
          <p>Clients that use it are refused at once, and their terminals close.</p>
        </Dialog>
      )}
    </section>
  );
}

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: (secret: string) => void }) {
  const name = useSignal("");
  const team = useSignal("");
  const admin = useSignal(false);
  const make = async () => {
    const wanted = { name: name.value, admin: admin.value, ...(team.value.trim() && { team: team.value.trim() }) };
    onMade((await data(client.POST("/api/v1/keys", { body: wanted }))).secret);
  };
  return (
    <Dialog title="New key" action="Make" onClose={onClose} onDone={make}>
      <Field label="Name">
        <input required maxLength={128} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
      <Field label="Team" hint="Optional. It is made if it does not exist; without one it is yours.">
        <input value={team.value} onInput={(event) => (team.value = event.currentTarget.value)} />
      </Field>
      <label class="check">
        <input type="checkbox" checked={admin.value} onChange={() => (admin.value = !admin.value)} /> Admin: may make
        keys and templates, and sees all teams
      </label>
    </Dialog>
  );
}
