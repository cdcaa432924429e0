import { beforeEach, expect, test, vi } from "vitest";
import { patient, patientIfRepeatable } from "./patient";

const fetched = vi.fn<(request: Request) => Promise<Response>>();
const broken = async () => {
  throw new TypeError("Failed to fetch");
};

beforeEach(() => {
  vi.useFakeTimers();
  fetched.mockReset();
  vi.stubGlobal("fetch", fetched);
});

const request = (method: string, body?: string, signal?: AbortSignal) =>
  new Request("http://localhost/things", { method, body, signal });

test("a read that loses its connection is asked again", async () => {
  fetched.mockImplementationOnce(broken).mockImplementationOnce(async () => new Response("there"));
  const answer = patientIfRepeatable(request("GET"));
  await vi.runAllTimersAsync();
  expect(await (await answer).text()).toBe("there");
});

test("each attempt has the whole body", async () => {
  const bodies: string[] = [];
  fetched.mockImplementation(async (request) => {
    bodies.push(await request.text());
    if (bodies.length < 3) throw new TypeError("Failed to fetch");
    return new Response();
  });
  const answer = patient(request("POST", "a text"));
  await vi.runAllTimersAsync();
  expect((await answer).ok).toBe(true);
  expect(bodies).toEqual(["a text", "a text", "a text"]);
});

test("what might be done twice is sent once", async () => {
  fetched.mockImplementation(broken);
  for (const method of ["POST", "PATCH", "DELETE"]) {
    await expect(patientIfRepeatable(request(method))).rejects.toThrow("Failed to fetch");
  }
  expect(fetched).toHaveBeenCalledTimes(3);
});

test("a server that is not there is told after four attempts", async () => {
  fetched.mockImplementation(broken);
  const refused = expect(patientIfRepeatable(request("GET"))).rejects.toThrow("Failed to fetch");
  await vi.runAllTimersAsync();
  await refused;
  expect(fetched).toHaveBeenCalledTimes(4);
});

test("a refusal is an answer", async () => {
  fetched.mockImplementation(async () => new Response(null, { status: 503 }));
  expect((await patientIfRepeatable(request("GET"))).status).toBe(503);
  expect(fetched).toHaveBeenCalledTimes(1);
});

test("a request that its page has given up is not repeated", async () => {
  const ending = new AbortController();
  fetched.mockImplementation(async () => {
    ending.abort();
    throw new DOMException("aborted", "AbortError");
  });
  await expect(patientIfRepeatable(request("GET", undefined, ending.signal))).rejects.toThrow("aborted");
  expect(fetched).toHaveBeenCalledTimes(1);
});
