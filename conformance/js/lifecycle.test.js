import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotFoundError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { own, pages, sharedSandbox, until } from './harness.js'

const shared = sharedSandbox({ metadata: { file: 'lifecycle', 'odd &=%': 'a+b/ü' } })
const UNKNOWN = 'i0000000000000000000z'

test('a new sandbox runs as user in its home', async () => {
  const result = await shared.sandbox.commands.run('whoami; pwd')
  assert.equal(result.stdout, 'user\n/home/user\n')
})

test('the id is as clients expect it', () => {
  assert.match(shared.sandbox.sandboxId, /^[a-z0-9]+$/)
})

test('create takes the name of a template', async (t) => {
  const sandbox = await Sandbox.create('base')
  t.after(() => sandbox.kill())
  assert.equal((await sandbox.getInfo()).name, 'base')
})

test('create refuses an unknown template', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), (error) => {
    assert.ok(error instanceof SandboxError)
    assert.match(error.message, /404.*no-such-template/)
    return true
  })
})

test('environment of create reaches every command', async (t) => {
  const sandbox = await own(t, { envs: { COLOUR: 'blue' } })
  assert.equal((await sandbox.commands.run('echo $COLOUR')).stdout, 'blue\n')
})

test('a command sees where it is', async () => {
  const { stdout } = await shared.sandbox.commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID')
  assert.equal(stdout, `true ${shared.sandbox.sandboxId}\n`)
})

test('getInfo says what was asked for', async () => {
  const info = await shared.sandbox.getInfo()
  assert.equal(info.sandboxId, shared.sandbox.sandboxId)
  assert.deepEqual(info.metadata, { file: 'lifecycle', 'odd &=%': 'a+b/ü' })
  assert.equal(info.state, 'running')
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128)
  assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
  const left = info.endAt - Date.now()
  assert.ok(left > 300_000 && left <= 600_000, `${left} ms left`)
  assert.ok(info.startedAt <= new Date())
})

test('getInfo of an id, and of an unknown one', async () => {
  const info = await Sandbox.getInfo(shared.sandbox.sandboxId)
  assert.equal(info.sandboxId, shared.sandbox.sandboxId)
  await assert.rejects(Sandbox.getInfo(UNKNOWN), SandboxNotFoundError)
})

test('lifecycle of a sandbox that is killed at its end', async () => {
  const info = await shared.sandbox.getInfo()
  assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
})

test('connect finds a sandbox and what is in it', async () => {
  await shared.sandbox.files.write('kept.txt', 'kept')
  const again = await Sandbox.connect(shared.sandbox.sandboxId, { timeoutMs: 600_000 })
  assert.equal(await again.files.read('kept.txt'), 'kept')
  await assert.rejects(Sandbox.connect(UNKNOWN), NotFoundError)
})

test('connect never shortens a life, and lengthens it', async (t) => {
  const sandbox = await own(t, { timeoutMs: 200_000 })
  const first = (await sandbox.getInfo()).endAt
  await sandbox.connect({ timeoutMs: 10_000 })
  assert.equal(+(await sandbox.getInfo()).endAt, +first)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 400_000 })
  assert.ok((await sandbox.getInfo()).endAt - first > 150_000)
})

test('setTimeout shortens and lengthens', async (t) => {
  const sandbox = await own(t, { timeoutMs: 100_000 })
  const left = async () => (await sandbox.getInfo()).endAt - Date.now()
  await sandbox.setTimeout(20_000)
  assert.ok((await left()) <= 20_000)
  await sandbox.setTimeout(300_000)
  assert.ok((await left()) > 250_000)
  await Sandbox.setTimeout(sandbox.sandboxId, 60_000)
  assert.ok((await left()) <= 60_000)
  await assert.rejects(Sandbox.setTimeout(UNKNOWN, 1000), SandboxNotFoundError)
})

test('a sandbox ends when its time is over', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000 })
  assert.equal(await sandbox.isRunning(), true)
  await sandbox.setTimeout(1000)
  await until(async () => !(await sandbox.isRunning()), 'the end of the sandbox')
  await assert.rejects(sandbox.getInfo(), SandboxNotFoundError)
  assert.equal(await sandbox.kill(), false)
})

test('kill, of an object and of an id, says whether there was one', async () => {
  const one = await Sandbox.create()
  assert.equal(await one.kill(), true)
  assert.equal(await one.kill(), false)
  assert.equal(await one.isRunning(), false)
  const other = await Sandbox.create()
  assert.equal(await Sandbox.kill(other.sandboxId), true)
  assert.equal(await Sandbox.kill(UNKNOWN), false)
})

test('list finds by metadata', async () => {
  const metadata = { 'odd &=%': 'a+b/ü' }
  const found = await pages(Sandbox.list({ query: { metadata } }))
  assert.ok(found.some(({ sandboxId }) => sandboxId === shared.sandbox.sandboxId))
  assert.ok(found.every((sandbox) => sandbox.metadata['odd &=%'] === 'a+b/ü'))
  assert.deepEqual(await pages(Sandbox.list({ query: { metadata: { no: 'such' } } })), [])
})

test('list goes by pages, in both orders', async (t) => {
  const metadata = { pages: `${process.pid}-${Date.now()}` }
  for (let made = 0; made < 3; made++) await own(t, { metadata })
  const listed = async (order) => {
    const paginator = Sandbox.list({ query: { metadata }, limit: 2, order })
    const sizes = []
    const ids = []
    while (paginator.hasNext) {
      const page = await paginator.nextItems()
      sizes.push(page.length)
      ids.push(...page.map(({ sandboxId }) => sandboxId))
    }
    assert.deepEqual(sizes, [2, 1])
    await assert.rejects(paginator.nextItems())
    return ids
  }
  const newest = await listed('desc')
  assert.equal(new Set(newest).size, 3)
  assert.deepEqual(await listed('asc'), newest.toReversed())
})

test('list finds by state, start and template', async () => {
  const { sandboxId } = shared.sandbox
  const { startedAt } = await shared.sandbox.getInfo()
  const has = async (query) =>
    (await pages(Sandbox.list({ query }))).some((found) => found.sandboxId === sandboxId)
  assert.equal(await has({ state: ['running'] }), true)
  assert.equal(await has({ state: ['paused'] }), false)
  assert.equal(await has({ startedAfter: new Date(+startedAt - 1000) }), true)
  assert.equal(await has({ startedAfter: new Date(+startedAt + 1000) }), false)
  assert.equal(await has({ template: 'base' }), true)
})

test('metrics are measured', async () => {
  const metrics = await until(async () => {
    const found = await shared.sandbox.getMetrics()
    return found.length > 0 && found
  }, 'the first sample')
  const [first] = metrics
  assert.ok(first.timestamp instanceof Date)
  assert.ok(first.cpuCount >= 1 && first.cpuUsedPct >= 0)
  assert.ok(first.memUsed > 0 && first.memUsed <= first.memTotal)
  assert.ok(first.diskTotal > 0 && first.diskUsed <= first.diskTotal)
  const none = await shared.sandbox.getMetrics({ start: new Date(0), end: new Date(1000) })
  assert.deepEqual(none, [])
  await assert.rejects(Sandbox.getMetrics(UNKNOWN), SandboxNotFoundError)
})

test('clients of a class of their own', async (t) => {
  const { E2B } = await import('e2b')
  const client = new E2B({ apiKey: process.env.E2B_API_KEY })
  const sandbox = await client.Sandbox.create()
  t.after(() => sandbox.kill())
  assert.equal((await sandbox.commands.run('echo bound')).stdout, 'bound\n')
})
