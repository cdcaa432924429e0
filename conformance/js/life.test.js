import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import {
  AuthenticationError, NotFoundError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError,
} from 'e2b'
import { sharedSandbox, until } from './helpers.js'

const left = (info) => (info.endAt.getTime() - Date.now()) / 1000

async function listed(options) {
  const pages = Sandbox.list(options)
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}

describe('the life of a sandbox', () => {
  const shared = sharedSandbox({ metadata: { suite: 'js' } })

  test('it tells what it is', async () => {
    const info = await shared.sandbox.getInfo()
    assert.equal(info.sandboxId, shared.sandbox.sandboxId)
    assert.equal(info.name, 'base')
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { suite: 'js' })
    assert.ok(left(info) > 500)
    assert.equal((await Sandbox.getInfo(shared.sandbox.sandboxId)).sandboxId, info.sandboxId)
  })

  test('it has five minutes when nothing is said', async () => {
    const made = await Sandbox.create()
    const seconds = left(await made.getInfo())
    assert.ok(seconds > 290 && seconds <= 300, `${seconds}`)
    await made.kill()
  })

  test('its time is changed', async () => {
    const made = await Sandbox.create({ timeoutMs: 60_000 })
    await made.setTimeout(600_000)
    assert.ok(left(await made.getInfo()) > 590)
    await Sandbox.setTimeout(made.sandboxId, 30_000)
    assert.ok(left(await made.getInfo()) <= 30)
    await Sandbox.connect(made.sandboxId, { timeoutMs: 10_000 })
    assert.ok(left(await made.getInfo()) > 15)
    await made.kill()
  })

  test('it is connected to', async () => {
    const again = await Sandbox.connect(shared.sandbox.sandboxId)
    assert.equal((await again.commands.run('echo same')).stdout, 'same\n')
  })

  test('it is killed once', async () => {
    const made = await Sandbox.create()
    assert.equal(await made.isRunning(), true)
    assert.equal(await made.kill(), true)
    assert.equal(await made.isRunning(), false)
    assert.equal(await Sandbox.kill(made.sandboxId), false)
    await assert.rejects(made.getInfo(), SandboxNotFoundError)
    await assert.rejects(made.setTimeout(1000), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(made.sandboxId), NotFoundError)
  })

  test('a command learns that its sandbox was killed', async () => {
    const made = await Sandbox.create()
    const handle = await made.commands.run('sleep 1000', { background: true })
    const ending = assert.rejects(handle.wait(), TimeoutError)
    await made.kill()
    await ending
  })

  test('its time ends it', async () => {
    const made = await Sandbox.create({ timeoutMs: 1000 })
    await until(async () => !(await made.isRunning()), 'the end')
  })

  test('variables are there for every command', async () => {
    const made = await Sandbox.create({ envs: { GLOBAL: 'g' } })
    assert.equal((await made.commands.run('echo $GLOBAL')).stdout, 'g\n')
    await made.kill()
  })

  test('a list is filtered and comes in pages', async () => {
    const metadata = { mark: randomUUID(), 'k 1&=': 'v&1 = ü%20' }
    const made = await Promise.all([1, 2, 3].map(() => Sandbox.create({ metadata })))
    const ids = made.map((sandbox) => sandbox.sandboxId).sort()
    const found = await listed({ query: { metadata }, limit: 1 })
    assert.deepEqual(found.map((info) => info.sandboxId).sort(), ids)
    assert.deepEqual(await listed({ query: { metadata, state: ['paused'] } }), [])
    await Promise.all(made.map((sandbox) => sandbox.kill()))
    assert.deepEqual(await listed({ query: { metadata } }), [])
  })

  test('metrics are measured', async () => {
    const metrics = await until(async () => {
      const found = await shared.sandbox.getMetrics()
      return found.length > 0 && found
    }, 'a sample')
    const last = metrics.at(-1)
    assert.ok(last.memUsed > 0 && last.memUsed <= last.memTotal)
    assert.ok(last.cpuCount >= 1)
    assert.ok(last.timestamp instanceof Date)
  })

  test('mistakes have their classes', async () => {
    await assert.rejects(Sandbox.create('no-such-template'), (error) => error instanceof SandboxError || error instanceof NotFoundError)
    await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
    await assert.rejects(Sandbox.create({ timeoutMs: 10 ** 12 }), SandboxError)
    assert.equal(await Sandbox.kill('inothingofthatname000'), false)
    await assert.rejects(Sandbox.getInfo('inothingofthatname000'), SandboxNotFoundError)
  })

  test('what is to come is refused by name', async () => {
    await assert.rejects(shared.sandbox.pause(), /not implemented/)
    await assert.rejects(shared.sandbox.createSnapshot(), /not implemented/)
  })

  test('its network is changed', async () => {
    const made = await Sandbox.create({ allowInternetAccess: false })
    await made.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['1.1.1.0/24'] })
    assert.deepEqual((await made.getInfo()).network.allowOut, ['1.1.1.0/24'])
    await assert.rejects(made.updateNetwork({ denyOut: ['no address'] }), SandboxError)
    await made.kill()
  })

  test('a port is named by its host', () => {
    assert.equal(shared.sandbox.getHost(8000), `8000-${shared.sandbox.sandboxId}.e2b.app`)
  })
})
