import { expect, test } from "vitest";
import { EventParser } from "./sse";

const TEXT = 'event: ready\n\n: comment\nevent: sandbox\ndata: {"a":\ndata: 1}\n\ndata:x\r\n\r\n';
const EVENTS = [
  { event: "ready", data: "" },
  { event: "sandbox", data: '{"a":\n1}' },
  { event: "message", data: "x" },
];

test("events are the same wherever the text is cut", () => {
  for (let cut = 0; cut <= TEXT.length; cut += 1) {
    const parser = new EventParser();
    expect([...parser.push(TEXT.slice(0, cut)), ...parser.push(TEXT.slice(cut))], `cut at ${cut}`).toEqual(EVENTS);
  }
});
