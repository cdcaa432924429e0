import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, FileNotFoundError, InvalidArgumentError } from 'e2b'
import { drained, sharedSandbox } from './harness.js'

const shared = sharedSandbox()
const files = new Proxy({}, { get: (_, name) => shared.sandbox.files[name].bind(shared.sandbox.files) })

test('a file is read in every format as it was written', async () => {
  const text = 'hello žluť 🐈\n'
  const info = await files.write('formats/a.txt', text)
  assert.deepEqual([info.name, info.path, info.type], ['a.txt', '/home/user/formats/a.txt', 'file'])
  assert.equal(await files.read('formats/a.txt'), text)
  assert.equal(await files.read('formats/a.txt', { format: 'text' }), text)
  const bytes = await files.read('formats/a.txt', { format: 'bytes' })
  assert.ok(bytes instanceof Uint8Array)
  assert.equal(Buffer.from(bytes).toString(), text)
  const blob = await files.read('formats/a.txt', { format: 'blob' })
  assert.equal(await blob.text(), text)
  const stream = await files.read('formats/a.txt', { format: 'stream' })
  assert.equal((await drained(stream)).toString(), text)
})

test('an empty file is empty in every format', async () => {
  await files.write('empty', '')
  assert.equal(await files.read('empty'), '')
  assert.equal((await files.read('empty', { format: 'bytes' })).length, 0)
  assert.equal((await files.read('empty', { format: 'blob' })).size, 0)
  assert.equal((await drained(await files.read('empty', { format: 'stream' }))).length, 0)
  assert.equal((await files.getInfo('empty')).size, 0)
})

test('everything that can be written', async () => {
  const data = Uint8Array.from({ length: 256 }, (_, n) => n)
  const forms = {
    buffer: data.buffer,
    blob: new Blob([data]),
    stream: new Blob([data]).stream(),
  }
  for (const [name, form] of Object.entries(forms)) {
    await files.write(`forms/${name}`, form)
    assert.deepEqual(await files.read(`forms/${name}`, { format: 'bytes' }), data, name)
  }
})

test('a write replaces, also what is longer', async () => {
  await files.write('again', 'a long text')
  await files.write('again', 'short')
  assert.equal(await files.read('again'), 'short')
})

test('compressed and as plain bytes, both ways', async () => {
  const text = 'again and again '.repeat(10_000)
  for (const options of [{ gzip: true }, { useOctetStream: true }, { gzip: true, useOctetStream: true }]) {
    const path = `coded/${Object.keys(options).join('-')}`
    await files.write(path, text, options)
    assert.equal((await files.getInfo(path)).size, text.length)
    assert.equal(await files.read(path, { gzip: true }), text)
    assert.equal(await files.read(path), text)
  }
})

test('ten megabytes through a stream', async () => {
  const part = new Uint8Array(65_536).fill(7)
  let left = 160
  const source = new ReadableStream({
    pull: (out) => (left-- > 0 ? out.enqueue(part) : out.close()),
  })
  await files.write('large', source)
  assert.equal((await files.getInfo('large')).size, 160 * 65_536)
  const back = await drained(await files.read('large', { format: 'stream' }))
  assert.equal(back.length, 160 * 65_536)
  assert.ok(back.every((byte) => byte === 7))
})

test('many files at once', async () => {
  const entries = Array.from({ length: 50 }, (_, n) => ({ path: `many/${n % 5}/${n}.txt`, data: `${n}` }))
  const written = await files.write(entries)
  assert.deepEqual(written.map(({ path }) => path), entries.map(({ path }) => `/home/user/${path}`))
  for (const n of [0, 17, 49]) assert.equal(await files.read(`many/${n % 5}/${n}.txt`), `${n}`)
  const more = await files.writeFiles([{ path: '/tmp/other.bin', data: new Blob(['x']) }])
  assert.equal(more[0].path, '/tmp/other.bin')
  assert.deepEqual(await files.write([]), [])
})

test('names of every kind', async () => {
  for (const name of ['with space', 'žluť 🐈', "quote'\"", 'a&b=c?d#e%20', '.hidden', '-dash', 'semi;colon']) {
    await files.write(`names/${name}`, name)
    assert.equal(await files.read(`names/${name}`), name)
  }
  assert.equal((await files.list('names')).length, 7)
})

test('a file belongs to who writes it', async () => {
  await files.write('/root/mine', 'r', { user: 'root' })
  assert.equal((await files.getInfo('/root/mine', { user: 'root' })).owner, 'root')
  const { owner, group, mode, permissions } = await files.getInfo(
    (await files.write('mine', 'u')).path,
  )
  assert.deepEqual([owner, group, mode, permissions], ['user', 'user', 0o644, '-rw-r--r--'])
})

test('paths are taken from home', async () => {
  await files.write('~/tilde.txt', 't')
  assert.equal((await files.getInfo('tilde.txt')).path, '/home/user/tilde.txt')
  await assert.rejects(files.getInfo('tilde.txt', { user: 'root' }), FileNotFoundError)
})

test('metadata of a file', async () => {
  const info = await files.write('labelled', 'x', { metadata: { author: 'me', kind: 'note' } })
  assert.deepEqual(info.metadata, { author: 'me', kind: 'note' })
  assert.deepEqual((await files.getInfo('labelled')).metadata, { author: 'me', kind: 'note' })
  await files.write('labelled', 'y')
  assert.equal((await files.getInfo('labelled')).metadata, undefined)
})

test('getInfo of file, directory and link', async () => {
  await files.write('info/a', '12345')
  await shared.sandbox.commands.run('ln -s /home/user/info/a info/link && ln -s info dirlink')
  const file = await files.getInfo('info/a')
  assert.deepEqual([file.type, file.size], ['file', 5])
  assert.ok(Math.abs(file.modifiedTime - Date.now()) < 60_000)
  const directory = await files.getInfo('info')
  assert.deepEqual([directory.type, directory.permissions], ['dir', 'drwxr-xr-x'])
  const link = await files.getInfo('info/link')
  assert.deepEqual([link.type, link.symlinkTarget], ['file', '/home/user/info/a'])
  assert.equal((await files.getInfo('dirlink')).type, 'dir')
})

test('list, one level and more', async () => {
  await files.write([{ path: 'tree/a', data: '' }, { path: 'tree/b/c', data: '' }, { path: 'tree/b/d/e', data: '' }])
  const names = async (depth) => (await files.list('tree', { depth })).map(({ path }) => path.slice(16))
  assert.deepEqual((await files.list('tree')).map(({ name, type }) => [name, type]), [['a', 'file'], ['b', 'dir']])
  assert.deepEqual(await names(1), ['a', 'b'])
  assert.deepEqual(await names(2), ['a', 'b', 'b/c', 'b/d'])
  assert.deepEqual(await names(9), ['a', 'b', 'b/c', 'b/d', 'b/d/e'])
  await assert.rejects(files.list('tree', { depth: 0 }), InvalidArgumentError)
})

test('list of what is no directory', async () => {
  await files.write('plain', '')
  await assert.rejects(files.list('plain'), InvalidArgumentError)
  await assert.rejects(files.list('nowhere'), FileNotFoundError)
})

test('makeDir says whether it made one', async () => {
  assert.equal(await files.makeDir('made/deep/er'), true)
  assert.equal(await files.makeDir('made/deep/er'), false)
  assert.equal((await files.getInfo('made/deep')).owner, 'user')
  await files.write('made/file', '')
  await assert.rejects(files.makeDir('made/file'), InvalidArgumentError)
})

test('exists', async () => {
  assert.equal(await files.exists('here'), false)
  await files.write('here', '')
  assert.equal(await files.exists('here'), true)
  assert.equal(await files.exists('/home/user'), true)
})

test('rename moves files and directories', async () => {
  await files.write('from/a', 'moved')
  const info = await files.rename('from', 'to/dir')
  assert.deepEqual([info.path, info.type], ['/home/user/to/dir', 'dir'])
  assert.equal(await files.read('to/dir/a'), 'moved')
  assert.equal(await files.exists('from'), false)
  await assert.rejects(files.rename('from', 'elsewhere'), FileNotFoundError)
})

test('rename replaces a file', async () => {
  await files.write('old', 'old')
  await files.write('new', 'new')
  await files.rename('new', 'old')
  assert.equal(await files.read('old'), 'new')
})

test('remove, also of what is not there', async () => {
  await files.write('doomed/a/b', '')
  await files.remove('doomed/a/b')
  assert.equal(await files.exists('doomed/a/b'), false)
  await files.remove('doomed')
  assert.equal(await files.exists('doomed'), false)
  await files.remove('doomed')
})

test('read and write where it cannot be', async () => {
  await assert.rejects(files.read('missing'), FileNotFoundError)
  await assert.rejects(files.getInfo('missing'), FileNotFoundError)
  await assert.rejects(files.read('/home'), InvalidArgumentError)
  await assert.rejects(files.write('/home/user', 'x'), InvalidArgumentError)
  await assert.rejects(files.write('/tmp/x', 'x', { user: 'nobody-here' }), AuthenticationError)
})

test('a signal of the caller gives a read up', async () => {
  await assert.rejects(files.read('large', { signal: AbortSignal.abort() }))
  await assert.rejects(files.list('/', { signal: AbortSignal.abort() }))
  assert.equal((await files.getInfo('large')).type, 'file')
})
