// Reports the result of each case as a line of JSON, without the totals of a file.
export default async function* (source) {
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail') continue
    const { name, nesting, skip, todo, details } = data
    if (details.type === 'suite' || (name.endsWith('.test.js') && nesting === 0)) {
      if (type === 'test:pass') continue
    }
    const error = details.error?.cause?.stack ?? details.error?.stack
    yield `${JSON.stringify({ name, passed: type === 'test:pass', skipped: Boolean(skip || todo), error })}\n`
  }
}
