import { useSignal } from "@preact/signals";
import { body, client, data } from "../api";
import { at, bytes } from "../format";
import { Dialog } from "../parts/dialog";
import { Loaded, useLoaded } from "../parts/loaded";
import { go, to } from "../route";
import { CreateDialog } from "../sandboxes/create";
import { Builds, Progress } from "./builds";

/** One template with its builds. */
export function TemplateView({ id }: { id: string }) {
  const params = { path: { id } };
  const template = useLoaded(() => data(client.GET("/api/v1/templates/{id}", { params })));
  const builds = useLoaded(() => body(client.GET("/templates/{id}", { params })));
  const create = useSignal(false);
  const removing = useSignal(false);
  const again = () => {
    template.again();
    builds.again();
  };
  return (
    <>
      <p class="crumbs">
        <a href={to("templates")}>Templates</a> / {template.value?.names[0] ?? id}
      </p>
      <Loaded from={template}>
        {(one) => {
          const name = one.names[0] ?? one.templateID;
          return (
            <>
              <div class="bar">
                <h1>{name}</h1>
                <Progress of={one.state} />
                <button onClick={again}>Read again</button>
                <span class="grow" />
                <button class="primary" disabled={one.state !== "ready"} onClick={() => (create.value = true)}>
                  Create sandbox
                </button>
                {!one.stock && (
                  <button class="danger" onClick={() => (removing.value = true)}>
                    Delete
                  </button>
                )}
              </div>
              {one.description && <p>{one.description}</p>}
              {one.failure && (
                <p class="problem" role="alert">
                  {one.failure}
                </p>
              )}
              <dl>
                <dt>Names</dt>
                <dd>{one.names.join(", ") || "—"}</dd>
                <dt>Tags</dt>
                <dd>{one.tags.join(", ") || "—"}</dd>
                <dt>Used by</dt>
                <dd>{one.stock ? "all teams: it belongs to the installation" : one.public ? "all teams" : "this team"}</dd>
                <dt>Size</dt>
                <dd>
                  {one.cpuMilli / 1000} CPU, {bytes(one.memoryMB * 2 ** 20)} memory, {bytes(one.diskSizeMB * 2 ** 20)} disk,{" "}
                  {one.pids} processes
                </dd>
                <dt>Commands</dt>
                <dd>
                  as {one.user}
                  {one.workdir && ` in ${one.workdir}`}
                </dd>
                <dt>Image</dt>
                <dd>{one.image || "—"}</dd>
                <dt>Updated</dt>
                <dd>{at(one.updatedAt)}</dd>
              </dl>
              {create.value && <CreateDialog template={name} onClose={() => (create.value = false)} />}
              {removing.value && (
                <Dialog
                  title={`Delete ${name}?`}
                  action="Delete"
                  danger
                  onClose={() => (removing.value = false)}
                  onDone={async () => {
                    await body(client.DELETE("/api/v1/templates/{id}", { params: { path: { id: one.templateID } } }));
                    go("templates");
                  }}
                >
                  <p>Sandboxes that run continue. This cannot be undone.</p>
                </Dialog>
              )}
            </>
          );
        }}
      </Loaded>
      <h2>Builds</h2>
      <Loaded from={builds}>{({ templateID, builds }) => <Builds template={templateID} builds={builds} onEnded={again} />}</Loaded>
    </>
  );
}
