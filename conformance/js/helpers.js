// What the cases for JavaScript share.
import { after, before } from 'node:test'
import { Sandbox } from 'e2b'

/** A sandbox for all tests of a file: none of them may harm it. */
export function sharedSandbox(options = {}) {
  const shared = {}
  before(async () => {
    shared.sandbox = await Sandbox.create({ timeoutMs: 600_000, ...options })
  })
  after(async () => {
    await shared.sandbox?.kill()
  })
  return shared
}

/** The first true answer of `ask`, asked again until there is one. */
export async function until(ask, what, ms = 20_000) {
  const end = Date.now() + ms
  for (;;) {
    const answer = await ask()
    if (answer) return answer
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`)
    await new Promise((next) => setTimeout(next, 20))
  }
}

export const RUNTIMES = ['runsc', 'runc']
