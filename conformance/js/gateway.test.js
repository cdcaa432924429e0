import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox } from 'e2b'
import { ask, open, own, promised, serve, server, sharedSandbox, soon } from './harness.js'

const PORT = 8000
const shared = sharedSandbox({}, (sandbox) => serve(sandbox, PORT))

const host = (port = PORT) => shared.sandbox.getHost(port)
const pair = (port = PORT) => ({
  'e2b-sandbox-id': shared.sandbox.sandboxId,
  'e2b-sandbox-port': String(port),
})

test('getHost names port and sandbox', () => {
  assert.ok(host(3000).startsWith(`3000-${shared.sandbox.sandboxId}.`))
})

test('a request by the name of its host', async () => {
  const { status, headers, text } = await ask(host(), '/a%2Fb?c=d&c=%20', { headers: { 'x-mine': '1' } })
  assert.equal(status, 200)
  assert.equal(headers['x-guest'], 'yes')
  const seen = JSON.parse(text)
  assert.deepEqual([seen.method, seen.path], ['GET', '/a%2Fb?c=d&c=%20'])
  assert.equal(seen.headers['x-mine'], '1')
  assert.equal(seen.headers.host, host())
})

test('a request by the pair of headers', async () => {
  const answer = await fetch(`${server.origin}/by/headers`, { headers: pair() })
  assert.equal(answer.status, 200)
  assert.equal((await answer.json()).path, '/by/headers')
})

test('every method, and its body', async () => {
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    const answer = await fetch(`${server.origin}/`, { method, headers: pair(), body: `body of ${method}` })
    const seen = await answer.json()
    assert.deepEqual([seen.method, seen.body], [method, `body of ${method}`])
  }
})

test('a body of unknown length', async () => {
  const body = new Blob(['one ', 'two']).stream()
  const answer = await fetch(`${server.origin}/`, { method: 'POST', headers: pair(), body, duplex: 'half' })
  assert.equal((await answer.json()).body, 'one two')
})

test('answers of every kind pass unchanged', async () => {
  for (const status of [201, 404, 418, 500, 503]) {
    assert.equal((await ask(host(), `/say/${status}`)).status, status)
  }
})

test('five megabytes', async () => {
  assert.equal((await ask(host(), '/large')).text.length, 5_000_000)
})

test('events arrive one by one during the answer', async (t) => {
  const request = open(host(), '/events', { headers: { accept: 'text/event-stream' } })
  t.after(() => request.destroy())
  const second = promised()
  let seen = ''
  request.on('error', second.reject).on('response', (response) => {
    assert.equal(response.headers['content-type'], 'text/event-stream')
    response.on('error', () => {}).on('data', (data) => {
      seen += data
      if (seen === 'data: 0\n\ndata: 1\n\n') second.resolve()
    })
  })
  request.end()
  await soon(second.promise, 'the second event')
})

test('a WebSocket, text and bytes of every length', async (t) => {
  const socket = new WebSocket(`ws://${server.host}/socket`, { headers: pair() })
  t.after(() => socket.close())
  socket.binaryType = 'arraybuffer'
  const opened = promised()
  socket.onopen = opened.resolve
  socket.onerror = (event) => opened.reject(event.error ?? new Error('refused'))
  await soon(opened.promise, 'the socket')
  const back = (message) => {
    const told = promised()
    socket.onmessage = ({ data }) => told.resolve(data)
    socket.send(message)
    return soon(told.promise, 'an echo')
  }
  assert.equal(await back('žluť 🐈'), 'žluť 🐈')
  for (const size of [0, 125, 126, 65_535, 65_536, 300_000]) {
    const data = new Uint8Array(size).fill(9)
    assert.deepEqual(new Uint8Array(await back(data)), data)
  }
  const closed = promised()
  socket.onclose = closed.resolve
  socket.close(1000, 'bye')
  assert.equal((await soon(closed.promise, 'the close')).code, 1000)
})

test('a WebSocket by the name of its host', async (t) => {
  const request = open(host(), '/socket', {
    headers: {
      connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13',
      'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
    },
  })
  t.after(() => request.destroy())
  const upgraded = promised()
  request.on('error', upgraded.reject).on('upgrade', (response, socket) => upgraded.resolve({ response, socket }))
  request.end()
  const { response, socket } = await soon(upgraded.promise, 'the upgrade')
  assert.equal(response.statusCode, 101)
  const echoed = promised()
  socket.once('data', echoed.resolve)
  // A masked frame of two letters, with an all-zero mask.
  socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]))
  assert.deepEqual(await soon(echoed.promise, 'an echo'), Buffer.from([0x81, 2, 0x68, 0x69]))
  socket.destroy()
})

test('a WebSocket breaks when its sandbox is killed', async (t) => {
  const sandbox = await own(t)
  await serve(sandbox, PORT)
  const socket = new WebSocket(`ws://${server.host}/socket`, {
    headers: { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': String(PORT) },
  })
  const [opened, closed] = [promised(), promised()]
  socket.onopen = opened.resolve
  socket.onclose = closed.resolve
  await soon(opened.promise, 'the socket')
  await sandbox.kill()
  await soon(closed.promise, 'its end')
})

test('a port where nothing listens', async () => {
  const { status, text } = await ask(host(9), '/')
  assert.equal(status, 502)
  assert.deepEqual(JSON.parse(text), {
    sandboxId: shared.sandbox.sandboxId,
    message: 'The sandbox is running but port is not open',
    port: 9,
    code: 502,
  })
})

test('a browser is given a page', async () => {
  const headers = {
    'user-agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
    accept: 'text/html',
  }
  const { status, text, headers: answered } = await ask(host(9), '/', { headers })
  assert.equal(status, 502)
  assert.match(answered['content-type'], /text\/html/)
  assert.match(text, /no service running on port/)
})

test('a sandbox that is gone, and one that never was', async () => {
  const { Sandbox } = await import('e2b')
  const gone = await Sandbox.create()
  const name = gone.getHost(PORT)
  await gone.kill()
  for (const host of [name, name.replace(gone.sandboxId, 'i0000000000000000000z')]) {
    const { status, text } = await ask(host, '/')
    assert.equal(status, 502)
    assert.match(text, /The sandbox was not found/)
  }
})

test('half of the pair of headers is refused', async () => {
  const { 'e2b-sandbox-id': id } = pair()
  const answer = await fetch(`${server.origin}/`, { headers: { 'e2b-sandbox-id': id } })
  assert.equal(answer.status, 400)
})

test('a server on the inner loopback is reached', async () => {
  await serve(shared.sandbox, 8001, { address: '127.0.0.1' })
  assert.equal((await ask(host(8001), '/inner')).status, 200)
})

test('what only the host may ask of the daemon is closed', async () => {
  const answer = await fetch(`${server.origin}/init`, { method: 'POST', headers: pair(49983), body: '{}' })
  assert.equal(answer.status, 404)
})
