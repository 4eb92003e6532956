// SPDX-License-Identifier: Apache-2.0

// Lays out each page in a frame of each width, and posts what it found.

const TABLE = 'article table.docutils';

// Whether a box around the element scrolls by itself, within the window.
function scrolls(element, view) {
  for (let box = element.parentElement; box; box = box.parentElement) {
    const style = view.getComputedStyle(box);
    if (['auto', 'scroll'].includes(style.overflowX)
        && !['BODY', 'HTML'].includes(box.tagName)
        && box.getBoundingClientRect().right <= view.innerWidth + 1) {
      return true;
    }
  }
  return false;
}

function look(frame) {
  const view = frame.contentWindow;
  const page = frame.contentDocument;
  const found = [];
  const root = page.scrollingElement;
  if (root.scrollWidth > view.innerWidth) {
    found.push(`the page is ${root.scrollWidth} pixels wide`);
  }
  for (const element of page.querySelectorAll('article *')) {
    const box = element.getBoundingClientRect();
    if (box.width && box.right > view.innerWidth + 1
        && !element.closest('svg') && !scrolls(element, view)) {
      found.push(`cut: ${element.tagName} ${element.textContent.trim()
        .slice(0, 40)}`);
    }
  }
  for (const image of page.images) {
    if (image.getClientRects().length && !image.naturalWidth) {
      found.push(`no picture: ${image.getAttribute('src')}`);
    }
  }
  for (const cell of page.querySelectorAll(`${TABLE} td, ${TABLE} th`)) {
    if (!['left', 'start'].includes(view.getComputedStyle(cell).textAlign)) {
      found.push(`not left: ${cell.textContent.trim().slice(0, 40)}`);
    }
  }
  if (view.innerWidth > 1000) {
    for (const name of ['.sidebar-tree', '.sidebar-search']) {
      const part = page.querySelector(name);
      if (!part || !part.getClientRects().length) {
        found.push(`no ${name}`);
      }
    }
    for (const table of page.querySelectorAll(TABLE)) {
      const box = table.parentElement;
      if (table.scrollWidth > box.clientWidth + 1) {
        found.push(`scrolls: ${table.textContent.trim().slice(0, 40)}`);
      }
    }
  }
  return found;
}

async function main() {
  const {pages, widths} = await (await fetch('/pages.json')).json();
  const found = [];
  for (const width of widths) {
    const frame = document.createElement('iframe');
    frame.style.width = `${width}px`;
    frame.style.height = '800px';
    frame.style.border = '0';
    document.body.append(frame);
    for (const page of pages) {
      await new Promise((resolve) => {
        frame.onload = resolve;
        frame.src = `/${page}`;
      });
      found.push(...look(frame).map((text) => `${page} at ${width}: ${text}`));
    }
    frame.remove();
  }
  return found;
}

main().then(
  (found) => found, (error) => [`look.js: ${error}`],
).then((found) => fetch('/found', {
  method: 'POST', body: JSON.stringify(found)}));
