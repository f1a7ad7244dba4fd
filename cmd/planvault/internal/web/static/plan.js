// The page of an open plan is read again while anybody sees it, until the plan is final.
'use strict';

const every = Number(new URL(document.currentScript.src).searchParams.get('every'));

// renew shows what another reading of the page has, and keeps what the reader has opened. The focus and a selection
// are lost with the element that has them, so the page waits until nothing is selected.
function renew(next) {
  const open = new Map([...document.querySelectorAll('main .body[id]')].map(b => [b.id, b.parentElement.open]));
  const focused = document.activeElement?.closest('details.node')?.querySelector('.body').id;
  for (const part of ['main', 'footer']) {
    document.querySelector(part).replaceWith(document.adoptNode(next.querySelector(part)));
  }
  for (const b of document.querySelectorAll('main .body[id]')) if (open.has(b.id)) b.parentElement.open = open.get(b.id);
  if (focused) document.getElementById(focused)?.parentElement.querySelector('summary').focus({preventScroll: true});
  document.title = next.title;
}

async function read() {
  if (document.hidden || !getSelection().isCollapsed) return true;
  try {
    const answer = await fetch(location.pathname + location.search);
    if (!answer.ok) return answer.status !== 404;
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
    renew(next);
    return next.querySelector('script[src*="plan.js"]') !== null; // the page of a final plan does not have it
  } catch {
    return true; // the server may come back
  }
}

async function follow() {
  do await new Promise(done => setTimeout(done, every)); while (await read());
}
follow();
