import { beforeEach, expect, test, vi } from "vitest";

const raw = vi.hoisted(() => vi.fn());

vi.mock("./api", () => ({
  raw,
  ApiError: class extends Error {
    constructor(readonly status: number) {
      super(`status ${status}`);
    }
  },
}));
vi.mock("./key", () => ({ key: { value: "a-key" } }));

const { ApiError } = await import("./api");
const { followEvents } = await import("./follow");

beforeEach(() => void raw.mockReset());

test("a stream that breaks is opened again until the signal aborts", async () => {
  vi.useFakeTimers();
  const ending = new AbortController();
  const heard: string[] = [];
  const lost = vi.fn();
  raw.mockImplementationOnce(async () => new Response("event: a\ndata: 1\n\n"));
  raw.mockImplementationOnce(async () => {
    throw new Error("no connection");
  });
  raw.mockImplementationOnce(async () => {
    ending.abort();
    return new Response("event: b\ndata: 2\n\n");
  });
  const followed = followEvents("/events", {
    signal: ending.signal,
    hear: (events) => void heard.push(...events.map(({ event }) => event)),
    lost,
  });
  await vi.runAllTimersAsync();
  await followed;
  expect(heard).toEqual(["a", "b"]);
  expect(lost.mock.calls.slice(0, 2)).toEqual([[], [new Error("no connection")]]);
  expect(raw).toHaveBeenCalledTimes(3);
  vi.useRealTimers();
});

test("a server without the stream is not asked again", async () => {
  raw.mockRejectedValue(new (ApiError as unknown as new (status: number) => Error)(501));
  const ending = new AbortController();
  await expect(followEvents("/events", { signal: ending.signal, hear: () => {}, lost: () => {} })).rejects.toThrow("501");
  expect(raw).toHaveBeenCalledTimes(1);
});
