/** The text box. Enter sends, Shift+Enter breaks the line, and an unfinished composition is left alone. */

import { byId } from './dom.js';
import { setIcon } from './icons.js';

/** @param {{onsend: (text: string) => void}} handlers */
export function composerView({ onsend }) {
  const form = byId('composer', HTMLFormElement);
  const message = byId('message', HTMLTextAreaElement);
  const send = byId('send', HTMLButtonElement);
  setIcon(send, 'send');

  function changed() {
    send.disabled = message.value.trim() === '';
    message.style.setProperty('--lines', String(Math.min(5, message.value.split('\n').length)));
  }

  message.addEventListener('input', changed);
  message.addEventListener('keydown', (event) => {
    // 229 is what Safari reports for the Enter that ends a composition.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = message.value.trim();
    if (!text) return;
    message.value = '';
    changed();
    onsend(text);
  });

  return { focus: () => message.focus() };
}
