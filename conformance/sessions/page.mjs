// Opens a page in a browser, and prints each of some texts when the page shows it.
import { chromium } from 'playwright-core'

const [, , url, ...texts] = process.argv

const browser = await chromium.launch({
  executablePath: 'chromium',
  // The tests run as root.
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--no-proxy-server'],
})
try {
  const page = await browser.newPage()
  page.on('console', (message) => console.error(message.text()))
  page.on('framenavigated', () => console.error('loaded'))
  await page.goto(url, { timeout: 120_000 })
  for (const text of texts) {
    await page.getByText(text, { exact: true }).waitFor({ timeout: 240_000 })
    console.log(text)
  }
} finally {
  await browser.close()
}
