// A browser without a window that does what it is told: one JSON object in each line of stdin, one
// answer in each line of stdout. What a page logs as an error, and what it is not allowed to do, is
// reported with `problems`.

import readline from 'node:readline';
import chromium from '@sparticuz/chromium';
import { chromium as playwright } from 'playwright-core';

const browser = await playwright.launch({
  executablePath: await chromium.executablePath(),
  args: [
    '--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--no-first-run'
  ]
});
let page;
let problems = [];

const actions = {
  async open({ url, width = 1280, height = 900, dark = false, permissions = [] }) {
    const context = await browser.newContext({
      viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', permissions
    });
    if (page) await page.context().close();
    problems = [];
    page = await context.newPage();
    page.setDefaultTimeout(30000);
    page.on('console', (message) => { if (message.type() === 'error') problems.push(message.text()); });
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('dialog', (dialog) => { problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on('request', (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (!protocol.startsWith('blob') && hostname !== '127.0.0.1') problems.push(`request: ${request.url()}`);
    });
    await page.goto(url, { waitUntil: 'domcontentloaded' });
  },
  async click({ selector }) { await page.click(selector); },
  async fill({ selector, value }) { await page.fill(selector, value); },
  async check({ selector }) { await page.check(selector); },
  async select({ selector, value }) { await page.selectOption(selector, value); },
  async press({ keys }) { await page.keyboard.press(keys); },
  async wait({ selector, state = 'visible' }) { await page.waitForSelector(selector, { state }); },
  async text({ selector }) { return await page.locator(selector).first().innerText(); },
  async texts({ selector }) { return await page.locator(selector).allInnerTexts(); },
  async value({ selector }) { return await page.inputValue(selector); },
  async count({ selector }) { return await page.locator(selector).count(); },
  async evaluate({ script }) { return await page.evaluate(script); },
  async screenshot({ path, whole = false }) { await page.screenshot({ path, fullPage: whole }); },
  async problems() { const found = problems; problems = []; return found; }
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { do: name, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await actions[name](given)) ?? null };
  } catch (error) {
    answer = { error: String(error), problems };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
await browser.close();
