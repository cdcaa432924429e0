import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxError } from 'e2b'
import './harness.js'

/** A sandbox that is gone after the test. */
const made = async (t, options = {}) => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000, ...options })
  t.after(() => Sandbox.kill(sandbox.sandboxId))
  return sandbox
}

/** A program that counts the lines that it is told, from 41 on. */
const counter = async (sandbox) => {
  const told = []
  const onStdout = (text) => told.push(text)
  const program = 'n=41; while read line; do n=$((n+1)); echo "$line $n"; done'
  const command = await sandbox.commands.run(program, { background: true, stdin: true, onStdout, timeoutMs: 0 })
  const says = async (pid, from, line, expected) => {
    await from.commands.sendStdin(pid, `${line}\n`)
    while (!told.join('').includes(expected)) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  return { pid: command.pid, says, onStdout }
}

test('a paused sandbox resumes where it was', async (t) => {
  const sandbox = await made(t)
  const { pid, says, onStdout } = await counter(sandbox)
  await says(pid, sandbox, 'one', 'one 42')
  await sandbox.files.write('kept', 'hello')
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  assert.equal(await sandbox.isRunning(), false)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('kept'), 'hello')
  await again.commands.connect(pid, { onStdout, timeoutMs: 0 })
  await says(pid, again, 'two', 'two 43')
})

test('a pause of the disk alone boots anew', async (t) => {
  const sandbox = await made(t)
  const { pid } = await counter(sandbox)
  await sandbox.files.write('kept', 'hello')
  await sandbox.pause({ keepMemory: false })
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('kept'), 'hello')
  assert.ok(!(await again.commands.list()).some((process) => process.pid === pid && process.cmd.includes('bash')))
})

test('a snapshot is taken, listed, started and removed', async (t) => {
  const sandbox = await made(t)
  await sandbox.files.write('kept', 'before')
  const snapshot = await sandbox.createSnapshot({ name: 'js-work' })
  await sandbox.files.write('kept', 'after')
  const begun = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
  t.after(() => Sandbox.kill(begun.sandboxId))
  assert.equal(await begun.files.read('kept'), 'before')
  assert.equal(await sandbox.files.read('kept'), 'after')
  const listed = await Sandbox.listSnapshots({ name: 'js-work' }).nextItems()
  assert.deepEqual(listed.map((one) => one.snapshotId), [snapshot.snapshotId])
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  await assert.rejects(Sandbox.create(snapshot.snapshotId), SandboxError)
})

test('a fork goes its own way', async (t) => {
  const sandbox = await made(t)
  const { pid, says } = await counter(sandbox)
  await says(pid, sandbox, 'one', 'one 42')
  const forks = await sandbox.fork({ count: 3, timeoutMs: 60_000 })
  assert.equal(forks.length, 3)
  for (const fork of forks) {
    assert.ok(fork instanceof Sandbox, String(fork))
    t.after(() => Sandbox.kill(fork.sandboxId))
    const own = await fork.commands.run('hostname')
    assert.equal(own.stdout.trim(), fork.sandboxId)
    assert.ok((await fork.commands.list()).some((process) => process.pid === pid))
  }
})

test('a sandbox rests at its end, and a request wakes it', async (t) => {
  const lifecycle = { onTimeout: 'pause', autoResume: true }
  const sandbox = await made(t, { lifecycle })
  const info = await sandbox.getInfo()
  assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
  await sandbox.setTimeout(1)
  while ((await sandbox.getInfo()).state !== 'paused') await new Promise((resolve) => setTimeout(resolve, 20))
  assert.equal((await sandbox.commands.run('echo woken')).stdout, 'woken\n')
  assert.equal((await sandbox.getInfo()).state, 'running')
})
