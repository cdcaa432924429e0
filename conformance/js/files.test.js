import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { AuthenticationError, FileNotFoundError, FilesystemEventType, FileType, InvalidArgumentError } from 'e2b'
import { RUNTIMES, sharedSandbox, until } from './helpers.js'

const large = new Uint8Array(3_000_001).map((_, n) => n % 251)

for (const runtime of RUNTIMES) {
  describe(`files in ${runtime}`, () => {
    const shared = sharedSandbox({ metadata: { 'shoal/runtime': runtime } })

    test('text is read as it was written', async () => {
      const info = await shared.sandbox.files.write('js/text.txt', 'grüße 世界')
      assert.equal(info.path, '/home/user/js/text.txt')
      assert.equal(await shared.sandbox.files.read('js/text.txt'), 'grüße 世界')
    })

    test('an empty file is a file', async () => {
      await shared.sandbox.files.write('js/empty', '')
      assert.equal(await shared.sandbox.files.read('js/empty'), '')
    })

    for (const [kind, data] of [
      ['an array buffer', large.buffer],
      ['a blob', new Blob([large])],
      ['a stream', () => new Blob([large]).stream()],
    ]) {
      test(`${kind} is written and read as bytes`, async () => {
        await shared.sandbox.files.write('js/large', typeof data === 'function' ? data() : data)
        const read = await shared.sandbox.files.read('js/large', { format: 'bytes' })
        assert.ok(Buffer.from(read).equals(Buffer.from(large)))
      })
    }

    test('a file is read as a blob and as a stream', async () => {
      await shared.sandbox.files.write('js/large', large.buffer)
      const blob = await shared.sandbox.files.read('js/large', { format: 'blob' })
      assert.equal(blob.size, large.length)
      const chunks = []
      for await (const chunk of await shared.sandbox.files.read('js/large', { format: 'stream' })) chunks.push(chunk)
      assert.ok(Buffer.concat(chunks).equals(Buffer.from(large)))
    })

    test('what is compressed on the way arrives whole', async () => {
      await shared.sandbox.files.write('js/zip', 'abc'.repeat(100_000), { gzip: true })
      assert.equal(await shared.sandbox.files.read('js/zip', { gzip: true }), 'abc'.repeat(100_000))
    })

    test('many files are written in one call', async () => {
      const files = Array.from({ length: 10 }, (_, n) => ({ path: `js/many/${n}/f`, data: `${n}` }))
      const infos = await shared.sandbox.files.write(files)
      assert.equal(infos.length, 10)
      assert.equal(await shared.sandbox.files.read('js/many/9/f'), '9')
    })

    test('a directory is listed as deep as is asked', async () => {
      await shared.sandbox.commands.run('mkdir -p js/deep/a && touch js/deep/a/f js/deep/g')
      const names = async (depth) =>
        (await shared.sandbox.files.list('js/deep', { depth })).map((entry) => [entry.name, entry.type])
      assert.deepEqual(await names(1), [['a', FileType.DIR], ['g', FileType.FILE]])
      assert.deepEqual(await names(2), [['a', FileType.DIR], ['f', FileType.FILE], ['g', FileType.FILE]])
    })

    test('a file tells what it is', async () => {
      await shared.sandbox.files.write('js/what', '12345', { metadata: { Author: 'me' } })
      const info = await shared.sandbox.files.getInfo('js/what')
      assert.deepEqual(
        [info.name, info.size, info.mode, info.permissions, info.owner, info.group, info.type],
        ['what', 5, 0o644, '-rw-r--r--', 'user', 'user', FileType.FILE],
      )
      assert.deepEqual(info.metadata, { author: 'me' })
      assert.ok(info.modifiedTime instanceof Date)
    })

    test('files are made, moved and removed', async () => {
      const files = shared.sandbox.files
      assert.equal(await files.makeDir('js/made/x'), true)
      assert.equal(await files.makeDir('js/made/x'), false)
      await files.write('js/made/x/f', '1')
      assert.equal((await files.rename('js/made/x/f', 'js/made/g')).path, '/home/user/js/made/g')
      assert.equal(await files.exists('js/made/x/f'), false)
      await files.remove('js/made')
      assert.equal(await files.exists('js/made/g'), false)
    })

    test('mistakes have their classes', async () => {
      const files = shared.sandbox.files
      await assert.rejects(files.read('js/missing'), FileNotFoundError)
      await assert.rejects(files.list('js/missing'), FileNotFoundError)
      await assert.rejects(files.getInfo('js/missing'), FileNotFoundError)
      await assert.rejects(files.write('/home/user', 'x'), InvalidArgumentError)
      await assert.rejects(files.read('x', { user: 'ghost' }), AuthenticationError)
    })

    test('a watch tells what happens, below too', async () => {
      const events = []
      await shared.sandbox.files.makeDir('js/watched/below')
      const handle = await shared.sandbox.files.watchDir('js/watched', (event) => events.push(event), { recursive: true })
      await shared.sandbox.files.write('js/watched/below/f', '1')
      await until(
        () => events.some((event) => event.name === 'below/f' && event.type === FilesystemEventType.WRITE),
        'the event',
      )
      await handle.stop()
    })

    test('links read and write files', async () => {
      await shared.sandbox.files.write('js/linked', 'linked')
      const url = await shared.sandbox.downloadUrl('/home/user/js/linked', { useSignatureExpiration: 60_000 })
      assert.equal(await (await fetch(url)).text(), 'linked')
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'x')
      const answer = await fetch(await shared.sandbox.uploadUrl('js/uploaded'), { method: 'POST', body: form })
      assert.equal(answer.status, 200)
      assert.equal(await shared.sandbox.files.read('js/uploaded'), 'uploaded')
    })
  })
}
