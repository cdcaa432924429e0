import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sharedSandbox, soon, until } from './harness.js'

const shared = sharedSandbox()
const files = () => shared.sandbox.files

test('downloadUrl gives a file to who has only the URL', async () => {
  await files().write('signed.txt', 'for all to read')
  const answer = await fetch(await shared.sandbox.downloadUrl('signed.txt'))
  assert.equal(answer.status, 200)
  assert.equal(await answer.text(), 'for all to read')
})

test('uploadUrl takes a file at its path', async () => {
  const form = new FormData()
  form.append('file', new Blob(['put here']), 'ignored.txt')
  const url = await shared.sandbox.uploadUrl('uploaded.txt')
  const answer = await fetch(url, { method: 'POST', body: form })
  assert.equal(answer.status, 200)
  assert.equal((await answer.json())[0].path, '/home/user/uploaded.txt')
  assert.equal(await files().read('uploaded.txt'), 'put here')
})

test('uploadUrl without a path takes the name of the file', async () => {
  const form = new FormData()
  form.append('file', new Blob(['named']), 'named/by/form.txt')
  const answer = await fetch(await shared.sandbox.uploadUrl(), { method: 'POST', body: form })
  assert.equal(answer.status, 200)
  const [{ path }] = await answer.json()
  assert.equal(await files().read(path), 'named')
})

test('a URL of another user', async () => {
  await files().write('/root/own.txt', 'of root', { user: 'root' })
  const url = await shared.sandbox.downloadUrl('/root/own.txt', { user: 'root' })
  assert.equal(await (await fetch(url)).text(), 'of root')
})

test('a URL works until its time is over', async () => {
  await files().write('short.txt', 'lived')
  const lasting = (seconds) => shared.sandbox.downloadUrl('short.txt', { useSignatureExpiration: seconds })
  // Of the one that is soon over, a busy machine may see nothing but its end.
  assert.equal((await fetch(await lasting(120))).status, 200)
  const url = await lasting(2)
  const late = await until(async () => {
    const answer = await soon(fetch(url), 'an answer')
    return answer.status !== 200 && answer
  }, 'the end of the URL')
  assert.equal(late.status, 401)
  assert.deepEqual(await late.json(), { code: 401, message: 'signature is already expired' })
})

test('a URL is good for its path, its direction and nothing else', async () => {
  await files().write('one.txt', '1')
  await files().write('two.txt', '2')
  const url = await shared.sandbox.downloadUrl('one.txt')
  const other = new URL(url)
  other.searchParams.set('path', 'two.txt')
  const spoiled = new URL(url)
  spoiled.searchParams.set('signature', 'v1_AAAA')
  const bare = new URL(url)
  bare.searchParams.delete('signature')
  for (const wrong of [other, spoiled, bare]) {
    const { status } = await fetch(wrong)
    assert.ok(status >= 400 && status < 500, `${status} for ${wrong}`)
  }
  const body = new FormData()
  body.append('file', new Blob(['x']), 'one.txt')
  const { status } = await fetch(url, { method: 'POST', body })
  assert.ok(status >= 400 && status < 500, `${status} for a write`)
  assert.equal(await files().read('one.txt'), '1')
})

test('a range of a file', async () => {
  await files().write('range.txt', '0123456789')
  const url = await shared.sandbox.downloadUrl('range.txt')
  const answer = await fetch(url, { headers: { range: 'bytes=2-4' } })
  assert.equal(answer.status, 206)
  assert.equal(await answer.text(), '234')
})
