import { run } from "../api";
import { bytes } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import { attempt } from "../parts/toast";
import { LIST_PROCESSES, processes } from "./proc";
import type { TabProps } from "./view";

export function ProcessesTab({ one }: TabProps) {
  const found = useLoaded(async () => processes(await run(one.id, LIST_PROCESSES)), [one.id]);
  const end = (pid: number) =>
    attempt(async () => {
      await run(one.id, `kill -9 ${pid}`, "root");
      found.again();
    }, `Killed process ${pid}.`);
  return (
    <>
      <div class="bar">
        <button onClick={found.again}>Read again</button>
      </div>
      <Loaded from={found}>
        {(all) => (
          <Table
            label="Processes"
            rows={all}
            id={(process) => process.pid}
            columns={[
              { title: "Process", number: true, cell: ({ pid }) => pid },
              { title: "User", cell: ({ user }) => user },
              { title: "CPU", number: true, cell: ({ cpu }) => `${cpu} %` },
              { title: "Memory", number: true, cell: ({ memory }) => bytes(memory) },
              { title: "Command", cell: ({ command }) => <code>{command}</code> },
              {
                title: "Action",
                quiet: true,
                cell: ({ pid }) => (
                  <button class="quiet" aria-label={`Kill process ${pid}`} onClick={() => end(pid)}>
                    Kill
                  </button>
                ),
              },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}
