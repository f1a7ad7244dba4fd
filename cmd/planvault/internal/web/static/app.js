// The pages work without this script. With it, ages count on, and live pages stay up to date.
'use strict';

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

// replaceRow changes the cells that differ, so that the focus and the selection stay in those that don't.
function replaceRow(row, next) {
  [...row.cells].forEach((cell, i) => {
    if (cell.innerHTML === next.cells[i].innerHTML) return;
    const focused = [...cell.querySelectorAll('a, button')].indexOf(document.activeElement);
    cell.replaceChildren(...next.cells[i].childNodes);
    cell.querySelectorAll('a, button')[focused]?.focus();
  });
}

// replaceRows changes a table to the rows of another one.
function replaceRows(body, next) {
  const focused = document.activeElement;
  const rows = new Map([...body.rows].map(row => [row.dataset.key, row]));
  const wanted = [...next.rows].map(row => {
    const there = rows.get(row.dataset.key);
    if (there) {
      replaceRow(there, row);
      return there;
    }
    row.classList.add('new');
    return document.adoptNode(row);
  });
  for (const row of rows.values()) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, i) => {
    const there = body.rows[i] ?? null;
    if (row !== there) body.insertBefore(row, there);
  });
  if (focused.isConnected) focused.focus({preventScroll: true}); // a row that moves loses it
}

function replaceText(here, there) {
  if (here.innerHTML !== there.innerHTML) here.innerHTML = there.innerHTML;
}

// replaceGroups changes what groups say of themselves, or takes other groups as they are.
function replaceGroups(here, there) {
  const ids = groups => [...groups.children].map(group => group.id).join();
  if (ids(here) !== ids(there)) {
    here.replaceChildren(...there.children);
    return;
  }
  for (const part of ['.about', '.more']) {
    const parts = there.querySelectorAll(part);
    here.querySelectorAll(part).forEach((p, i) => replaceText(p, parts[i]));
  }
}

// renew shows what another reading of the page has.
function renew(next) {
  document.title = next.title;
  document.body.dataset.live = next.body.dataset.live;
  ahead = Date.parse(next.body.dataset.now) - Date.now();
  for (const id of ['alarm', 'counts', 'failure', 'look']) replaceText(document.getElementById(id), next.getElementById(id));
  for (const groups of document.querySelectorAll('.groups')) replaceGroups(groups, next.getElementById(groups.id));
  for (const body of document.querySelectorAll('tbody[id]')) {
    const there = next.getElementById(body.id);
    if (there) replaceRows(body, there); // groups that were replaced have taken theirs
  }
  countOn();
}

// follow keeps a live page up to date. It does not read while nobody can see the page: the server asks the store only
// while somebody watches.
function follow() {
  const link = document.getElementById('link'), patience = 45000;
  let heard = Date.now(), reading = false, timer;

  function say(state, text) {
    link.className = state;
    if (link.textContent !== text) link.textContent = text;
  }

  async function read() {
    clearTimeout(timer);
    if (document.hidden || reading) return;
    reading = true;
    try {
      const answer = await fetch(location.href, {signal: AbortSignal.timeout(patience)});
      if (!answer.ok) throw new Error(answer.statusText);
      renew(new DOMParser().parseFromString(await answer.text(), 'text/html'));
      heard = Date.now();
      say('up', 'Live');
    } catch {
      if (Date.now() - heard >= patience) {
        say('down', 'Not live: nothing has been heard since ' + new Date(heard).toISOString().slice(11, 19) + 'Z. Trying again.');
      }
    }
    reading = false;
    timer = setTimeout(read, Number(document.body.dataset.live));
  }

  document.addEventListener('visibilitychange', read);
  addEventListener('pageshow', event => { if (event.persisted) read(); });
  say('up', 'Live');
  timer = setTimeout(read, Number(document.body.dataset.live));
}

if ('live' in document.body.dataset) follow();
