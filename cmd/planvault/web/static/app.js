// The pages work without this script. With it, ages count on, IDs can be copied, and live pages stay up to date.
'use strict';

document.documentElement.classList.add('script');

// ahead is how far the store's clock is ahead of the browser's, in milliseconds.
let ahead = Date.parse(document.body.dataset.now) - Date.now();

// span returns a duration for people, as the server does.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000)), two = n => String(n).padStart(2, '0');
  if (s < 60) return s + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm' + two(s % 60) + 's';
  if (s < 48 * 3600) return Math.floor(s / 3600) + 'h' + two(Math.floor(s / 60) % 60) + 'm';
  return Math.floor(s / 86400) + 'd' + two(Math.floor(s / 3600) % 24) + 'h';
}

function countOn() {
  const now = Date.now() + ahead;
  for (const t of document.querySelectorAll('time[data-age]')) {
    const text = span(now - Date.parse(t.dateTime));
    if (t.textContent !== text) t.textContent = text;
  }
}
setInterval(countOn, 1000);

document.addEventListener('click', async event => {
  const button = event.target.closest('button[data-copy]');
  if (!button) return;
  let said = 'Copied';
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch { // browsers allow it only on this machine and over https
    getSelection().selectAllChildren(button.previousElementSibling);
    said = 'Selected';
  }
  const label = button.firstChild;
  label.data = said;
  document.getElementById('said').textContent = `${said}: ${button.dataset.copy}`;
  setTimeout(() => { label.data = 'Copy'; }, 1500);
});

// parse returns the first element of a piece of HTML.
function parse(html) {
  const t = document.createElement('template');
  t.innerHTML = html;
  return t.content.firstElementChild;
}

// replaceRow changes the cells that differ, so that the focus and the selection stay in those that don't.
function replaceRow(row, next) {
  [...row.cells].forEach((cell, i) => {
    if (cell.innerHTML === next.cells[i].innerHTML) return;
    const focused = [...cell.querySelectorAll('a, button')].indexOf(document.activeElement);
    cell.replaceChildren(...next.cells[i].childNodes);
    cell.querySelectorAll('a, button')[focused]?.focus();
  });
}

// replaceRows changes a list.
function replaceRows(body, change) {
  const focused = document.activeElement;
  const rows = new Map([...body.rows].map(row => [row.dataset.key, row]));
  for (const [key, html] of Object.entries(change.rows ?? {})) {
    const next = parse(html), row = rows.get(key);
    if (row) {
      replaceRow(row, next);
    } else {
      next.classList.add('new');
      rows.set(key, next);
    }
  }
  if (!change.order) return;
  const wanted = new Set(change.order);
  for (const [key, row] of rows) if (!wanted.has(key)) row.remove();
  change.order.forEach((key, i) => {
    const row = rows.get(key), there = body.rows[i] ?? null;
    if (row && row !== there) body.insertBefore(row, there);
  });
  if (focused.isConnected) focused.focus({preventScroll: true}); // a row that moves loses it
}

// follow keeps a live page up to date. It does not listen while nobody can see the page: each live page takes one of
// the few connections that a browser has for a server, and the server asks the store only while somebody watches.
function follow() {
  const link = document.getElementById('link'), beat = 15000;
  const title = document.title.replace(/^\(.*?\) /, '');
  let source, heard, retry;

  function say(state, text) {
    link.className = state;
    if (link.textContent !== text) link.textContent = text;
  }

  function hear(event) {
    heard = Date.now();
    const change = JSON.parse(event.data);
    ahead = Date.parse(change.now) - heard;
    say('up', 'Live');
    return change;
  }

  function change(event) {
    const change = hear(event);
    if (change.title !== undefined) document.title = change.title + title;
    for (const [id, html] of Object.entries(change.texts ?? {})) {
      const e = document.getElementById(id);
      if (e && e.innerHTML !== html) e.innerHTML = html;
    }
    for (const [id, list] of Object.entries(change.lists ?? {})) {
      const body = document.getElementById(id);
      if (body) replaceRows(body, list);
    }
    countOn();
  }

  function close() {
    clearTimeout(retry);
    source?.close();
    source = undefined;
  }

  function open() {
    close();
    heard = Date.now();
    source = new EventSource('/events');
    source.addEventListener('open', () => { heard = Date.now(); say('up', 'Live'); });
    source.addEventListener('change', change);
    source.addEventListener('beat', hear);
    source.addEventListener('error', () => {
      say('down', 'Not live: the server does not answer, or has too many viewers. Trying again.');
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, 30000);
    });
  }

  setInterval(() => { // a connection that is cut without a word looks like a quiet one
    if (source && Date.now() - heard > 3 * beat) {
      say('down', 'Not live: nothing has been heard since ' + new Date(heard).toISOString().slice(11, 19) + 'Z. Trying again.');
      open();
    }
  }, beat);
  document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
  addEventListener('pagehide', close);
  addEventListener('pageshow', event => { if (event.persisted && !document.hidden) open(); });
  if (!document.hidden) open();
}

if ('live' in document.body.dataset) follow();
