import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FileNotFoundError, InvalidArgumentError, TimeoutError } from 'e2b'
import { own, promised, sharedSandbox, soon, until } from './harness.js'

const shared = sharedSandbox()

/** Watches a new directory, and collects what is told. */
async function watched(t, name, options = {}) {
  const { files } = shared.sandbox
  await files.makeDir(name)
  const events = []
  const handle = await files.watchDir(name, (event) => void events.push(event), options)
  t.after(() => handle.stop())
  const seen = (type, path) =>
    until(() => events.find((event) => event.type === type && event.name === path), `${type} of ${path}`)
  return { files, events, handle, seen }
}

test('create, write and remove are told', async (t) => {
  const { files, seen } = await watched(t, 'simple')
  await files.write('simple/a', 'a')
  await seen('create', 'a')
  await seen('write', 'a')
  await files.remove('simple/a')
  await seen('remove', 'a')
})

test('chmod and rename are told', async (t) => {
  const { files, seen } = await watched(t, 'changes')
  await files.write('changes/a', 'a')
  await shared.sandbox.commands.run('chmod 600 changes/a')
  await seen('chmod', 'a')
  await files.rename('changes/a', 'changes/b')
  await seen('rename', 'a')
  await seen('create', 'b')
})

test('what is below is told when it is asked for', async (t) => {
  const { files, seen } = await watched(t, 'deep', { recursive: true })
  await files.write('deep/new/inner/file', 'x')
  await seen('create', 'new')
  await files.write('deep/new/inner/file', 'y')
  await seen('write', 'new/inner/file')
  await files.makeDir('deep/later')
  await seen('create', 'later')
  await files.write('deep/later/z', 'z')
  await seen('create', 'later/z')
})

test('what is below is not told when it is not', async (t) => {
  const { files, seen, events } = await watched(t, 'flat')
  await files.makeDir('flat/sub')
  await seen('create', 'sub')
  await files.write('flat/sub/hidden', '')
  await files.write('flat/last', '')
  await seen('create', 'last')
  assert.ok(events.every(({ name }) => !name.includes('hidden')))
})

test('an event may carry what it is about', async (t) => {
  const { files, seen } = await watched(t, 'entries', { includeEntry: true })
  await files.write('entries/a', '123')
  const event = await seen('create', 'a')
  assert.deepEqual([event.entry.path, event.entry.type], ['/home/user/entries/a', 'file'])
  await files.remove('entries/a')
  assert.equal((await seen('remove', 'a')).entry, undefined)
})

test('nothing is told after stop', async (t) => {
  const ended = promised()
  const { files, events, handle, seen } = await watched(t, 'stopped', { onExit: ended.resolve })
  await files.write('stopped/a', '')
  await seen('create', 'a')
  await handle.stop()
  await soon(ended.promise, 'the end of the watch')
  const count = events.length
  await files.write('stopped/b', '')
  const other = await watched(t, 'stopped-other')
  await files.write('stopped-other/c', '')
  await other.seen('create', 'c')
  assert.equal(events.length, count)
})

test('a watch ends with its time', async (t) => {
  const ended = promised()
  await watched(t, 'timed', { timeoutMs: 1000, onExit: ended.resolve })
  const error = await soon(ended.promise, 'the end of the watch')
  assert.ok(error instanceof TimeoutError, String(error))
})

test('a watch ends with its sandbox', async (t) => {
  const sandbox = await own(t)
  const ended = promised()
  await sandbox.files.watchDir('/home/user', () => {}, { onExit: ended.resolve })
  await sandbox.kill()
  assert.ok((await soon(ended.promise, 'the end of the watch')) instanceof Error)
})

test('what is no directory cannot be watched', async () => {
  const { files } = shared.sandbox
  await assert.rejects(files.watchDir('nowhere', () => {}), FileNotFoundError)
  await files.write('file', '')
  await assert.rejects(files.watchDir('file', () => {}), InvalidArgumentError)
})
