import { expect, test } from "vitest";
import { listeningPorts, processes } from "./proc";

test("processes with their whole command", () => {
  const found = processes("    1 root      0.0   1024 /bin/init --x y\n  42 user     12.5    2 python3\nnoise\n");
  expect(found).toEqual([
    { pid: 1, user: "root", cpu: 0, memory: 1 << 20, command: "/bin/init --x y" },
    { pid: 42, user: "user", cpu: 12.5, memory: 2048, command: "python3" },
  ]);
});

test("listening ports only, each once", () => {
  const text = [
    "  sl  local_address rem_address   st tx_queue",
    "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000",
    "   1: 0100007F:C33F 0100007F:0050 01 00000000:00000000",
    "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0",
    "   2: 00000000:0016 00000000:0000 0A",
  ].join("\n");
  expect(listeningPorts(text)).toEqual([22, 8080]);
});
