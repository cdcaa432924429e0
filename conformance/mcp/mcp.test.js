// The official TypeScript client, over streamable HTTP and stdio. It checks each result against the tool's schema.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const { E2B_API_KEY, E2B_API_URL, SHOAL_BIN, PATH } = process.env

function overHttp() {
  const requestInit = { headers: { 'X-API-Key': E2B_API_KEY } }
  return new StreamableHTTPClientTransport(new URL(`${E2B_API_URL}/mcp`), { requestInit })
}

function overStdio() {
  return new StdioClientTransport({ command: SHOAL_BIN, args: ['mcp'], env: { E2B_API_KEY, E2B_API_URL, PATH } })
}

async function connected(transport, use) {
  const client = new Client({ name: 'conformance', version: '1.0.0' })
  await client.connect(transport)
  try {
    // Has the client know the schemas of results.
    await client.listTools()
    await use(client)
  } finally {
    await transport.terminateSession?.()
    await client.close()
  }
}

async function work(client) {
  const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, { timeout: 120_000, ...options })
  const told = []
  const ran = await call('run_command', { command: 'echo hello; pwd' }, { onprogress: (progress) => told.push(progress) })
  assert.match(ran.structuredContent.stdout, /^hello\n\//)
  await call('write_file', { path: 'a.txt', content: 'one\ntwo\n' })
  await call('edit_file', { path: 'a.txt', old: 'two', new: '2' })
  const read = await call('read_file', { path: 'a.txt' })
  assert.equal(read.content[0].text, 'one\n2\n')
  const none = await call('edit_file', { path: 'a.txt', old: 'three', new: '3' })
  assert.equal(none.isError, true)
  assert.equal(none._meta['shoal.dev/error'].code, 'no_edit')
  const listed = await call('list_files', {})
  assert.ok(listed.structuredContent.entries.some((entry) => entry.name === 'a.txt'))
  const found = await call('search_files', { pattern: '^2$', path: '.' })
  assert.equal(found.structuredContent.matches[0].line, 2)
  const uri = `sandbox://${ran.structuredContent.sandbox}/etc/hostname`
  assert.ok((await client.readResource({ uri })).contents[0].text.length > 0)
  await assert.rejects(call('no_such_tool', {}), /Unknown tool/)
}

test('a session over streamable HTTP', () => connected(overHttp(), work))

test('a session over stdio', () => connected(overStdio(), work))

test('a call is cancelled by its signal', () =>
  connected(overHttp(), async (client) => {
    const controller = new AbortController()
    const args = { command: 'echo begun; exec -a abort-me sleep 3000' }
    const options = { signal: controller.signal, timeout: 120_000, onprogress: () => controller.abort() }
    await assert.rejects(client.callTool({ name: 'run_command', arguments: args }, undefined, options))
    const gone = "for i in $(seq 600); do pgrep -f '^abort-m[e]' >/dev/null || exit 0; sleep 0.1; done; exit 1"
    const looked = await client.callTool({ name: 'run_command', arguments: { command: gone } }, undefined, { timeout: 120_000 })
    assert.equal(looked.structuredContent.exit_code, 0)
  }))
