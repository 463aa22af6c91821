// A browser without a window, and a person in front of it who logs in and agrees.
//
//     node browser.mjs                                     # only unpacks the browser
//     node browser.mjs <address> <screenshot.png> [deny]
//
// The browser comes packed in a package and is unpacked into TMPDIR. Prints the title of the page it
// ends on, and its text.

import chromium from '@sparticuz/chromium';
import { chromium as playwright } from 'playwright-core';

const [address, screenshot, deny] = process.argv.slice(2);
const executablePath = await chromium.executablePath();
if (!address) process.exit(0);
const browser = await playwright.launch({
  executablePath,
  args: [
    '--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--no-first-run'
  ]
});
try {
  const page = await browser.newPage({ viewport: { width: 900, height: 600 } });
  page.setDefaultTimeout(20000);
  await page.route((url) => url.hostname !== '127.0.0.1', (route) => route.abort());
  await page.goto(address, { waitUntil: 'domcontentloaded' });
  await page.fill('input[name=login]', 'ada');
  await page.fill('input[name=password]', 'lovelace');
  await page.click('button[type=submit]');
  await page.waitForSelector('text=Authorize');
  if (deny) await page.click('a:has-text("Cancel")');
  else await page.click('button[type=submit]');
  await page.waitForURL(/\/callback/, { waitUntil: 'load' });
  await page.screenshot({ path: screenshot });
  console.log(await page.title());
  console.log(await page.textContent('p'));
} finally {
  await browser.close();
}
