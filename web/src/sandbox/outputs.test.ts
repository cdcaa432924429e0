import { expect, test } from "vitest";
import { decodeLines } from "./outputs";

test("outputs are the same wherever the answer is cut", () => {
  const text = '{"type":"stdout","text":"a\\n"}\n\n{"type":"result","text":"42"}';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const first = decodeLines(text.slice(0, cut), false);
    const second = decodeLines(first.rest + text.slice(cut), true);
    const types = [...first.outputs, ...second.outputs].map((output) => output.type);
    expect(types, `cut at ${cut}`).toEqual(["stdout", "result"]);
  }
});
