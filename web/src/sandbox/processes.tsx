import { run } from "../api";
import { bytes } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
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
          <div class="wide" tabIndex={0} role="region" aria-label="Processes">
            <table>
              <thead>
                <tr>
                  <th class="number">Process</th>
                  <th>User</th>
                  <th class="number">CPU</th>
                  <th class="number">Memory</th>
                  <th>Command</th>
                  <th>
                    <span class="hidden">Action</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.pid}>
                    <td class="number">{one.pid}</td>
                    <td>{one.user}</td>
                    <td class="number">{one.cpu} %</td>
                    <td class="number">{bytes(one.memory)}</td>
                    <td>
                      <code>{one.command}</code>
                    </td>
                    <td>
                      <button class="quiet" aria-label={`Kill process ${one.pid}`} onClick={() => end(one.pid)}>
                        Kill
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </>
  );
}
