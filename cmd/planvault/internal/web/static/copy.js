// Buttons copy the text that they stand beside.
'use strict';

document.documentElement.classList.add('script');

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
