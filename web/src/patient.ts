/** How long to wait before each of the further attempts, in milliseconds. */
const PAUSES_MS = [100, 400, 1000];

/** Methods that change nothing the second time, and answer what they answered the first time. */
const REPEATABLE = ["GET", "HEAD", "PUT"];

/**
 * `fetch`, repeated when no answer comes at all. A browser ends the requests under way whenever its machine gets or
 * loses an address, and a sandbox that starts on the same machine is enough for that.
 */
export async function patient(request: Request): Promise<Response> {
  for (const pause of PAUSES_MS) {
    try {
      return await fetch(request.clone());
    } catch (error) {
      if (request.signal.aborted) throw error;
      await new Promise((done) => setTimeout(done, pause));
    }
  }
  return await fetch(request);
}

/** `patient` for requests that may be repeated whatever they say; `fetch` for the others. */
export function patientIfRepeatable(request: Request): Promise<Response> {
  return REPEATABLE.includes(request.method) ? patient(request) : fetch(request);
}
